package main

// helpText is what the agent says when it is asked for help or does not understand. It is the grammar of steps.go.
const helpText = `I am a scripted agent: I do the steps you list, one a line or joined by "then", "and" or ";". I understand:

  open URL                 open a page in the browser
  click TEXT               click what shows TEXT
  type TEXT into FIELD     type into a field, found by its label or placeholder
  press KEY                press Enter, Tab, Escape or an arrow key
  screenshot               take a picture of the page
  read                     read the page out
  run COMMAND              run a shell command here, in my sandbox
  fetch URL                fetch a URL without the browser, through the proxy
  wait N seconds           wait
  say TEXT                 say TEXT
  tools                    list the MCP tools I was given
  call TOOL {"key": …}     call any of them
  help                     say this

Text that holds one of the joining words goes in quotes: click "Terms and conditions".
`
