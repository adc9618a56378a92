// Package browser is the guarded browser (contract F): browser tools that handlerd itself serves to an agent, with
// checks on every call, over a browser in a second sandbox. It implements gateway.Server. The worker, the sandbox with
// playwright-mcp and Chromium in it, is spoken to as an MCP client; what it and its pages say is never believed, only
// passed on fenced and bounded.
package browser
