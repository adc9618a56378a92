package browser

import (
	"encoding/json"

	"github.com/mark3labs/mcp-go/mcp"
)

// A kind says what a tool may do, which decides what is checked before it runs (F.2, F.4).
type kind int

const (
	reads     kind = iota // gives what a page shows; needs no approval
	moves                 // goes to a page: a new origin is asked about unless the agent's rules allow it
	interacts             // acts on a page: needs an approval on external pages, and is refused where only reading is allowed
)

// A tool is one tool of the guarded browser.
type tool struct {
	name        string // as upstream has it, or ours
	title       string
	description string
	kind        kind
	properties  string // JSON: the properties of the input schema
	required    []string
	run         run
}

// targetProperty is the property by which every tool names an element. Upstream takes selectors too; here it is a reference of
// the snapshot that was just read, and nothing else (F.3).
const targetProperty = `{"type":"string","description":"the element's reference in the snapshot that was just read, such as e12 or f1e3"}`

// elementProperty is upstream's property for a description of an element. Nothing depends on it: what a person is asked about is
// what the page says of the element.
const elementProperty = `{"type":"string","description":"the element in words; for the record only"}`

// tools gives the tools (F.1), in the order in which they are listed. Those of playwright-mcp keep their names and the
// properties that are left of theirs: none evaluates code, names a path of the host or takes coordinates.
func tools() []tool {
	return []tool{
		{"browser_navigate", "Go to a page", "Opens a URL in the current tab and reads what it shows. A page of an origin that neither your rules nor your person allowed is asked about first.", moves,
			`{"url":{"type":"string","description":"http or https; http://files.workspace.invalid/PATH shows a file of the workspace, http://NAME.workspace.invalid an app that the workspace registered"}}`, []string{"url"}, runNavigate},
		{"browser_navigate_back", "Go back", "Goes back one page in the tab's history.", moves, `{}`, nil, runBack},
		{"browser_snapshot", "Read the page", "Reads the page as a tree of roles and names, with a reference for each element. Acting on an element needs a reference of the newest snapshot, and uses the snapshot up.", reads,
			`{"depth":{"type":"integer","minimum":1,"maximum":100,"description":"how deep to read the tree"}}`, nil, runSnapshot},
		{"browser_find", "Find text", "Looks for a text in the page's snapshot and gives the lines around it.", reads,
			`{"text":{"type":"string","maxLength":500,"description":"a part of what the page says; case does not matter"}}`, []string{"text"}, runFind},
		{"browser_search", "Search the web", "Opens a public result page in the current tab and gives its results: titles, addresses, what they say. A page that asks whether a person is there is told of, never answered.", moves,
			`{"query":{"type":"string","maxLength":500,"description":"the words"}}`, []string{"query"}, runSearch},
		{"browser_click", "Click", "Clicks an element. Your person is asked first on pages outside the workspace.", interacts,
			`{"element":` + elementProperty + `,"target":` + targetProperty + `,"doubleClick":{"type":"boolean"},"button":{"type":"string","enum":["left","right","middle"]},"modifiers":{"type":"array","items":{"type":"string","enum":["Alt","Control","ControlOrMeta","Meta","Shift"]}}}`, []string{"target"}, runClick},
		{"browser_type", "Type text", "Types a text into a field. Fields for passwords and one-time codes are never typed into.", interacts,
			`{"element":` + elementProperty + `,"target":` + targetProperty + `,"text":{"type":"string","maxLength":65536},"submit":{"type":"boolean","description":"press Enter afterwards"},"slowly":{"type":"boolean","description":"one character at a time"}}`, []string{"target", "text"}, runType},
		{"browser_fill_form", "Fill in a form", "Fills in several fields at once. Fields for passwords and one-time codes are never filled in.", interacts,
			`{"fields":{"type":"array","minItems":1,"maxItems":50,"items":{"type":"object","properties":{"element":` + elementProperty + `,"target":` + targetProperty + `,"name":{"type":"string","description":"the field in words"},"type":{"type":"string","enum":["textbox","checkbox","radio","combobox","slider"]},"value":{"type":"string","maxLength":65536,"description":"true or false for a checkbox or radio button, the option's text for a combobox"}},"required":["target","name","type","value"],"additionalProperties":false}}}`, []string{"fields"}, runFillForm},
		{"browser_select_option", "Select an option", "Selects options of a drop-down list.", interacts,
			`{"element":` + elementProperty + `,"target":` + targetProperty + `,"values":{"type":"array","minItems":1,"maxItems":100,"items":{"type":"string"}}}`, []string{"target", "values"}, runSelect},
		{"browser_press_key", "Press a key", "Presses a key where the focus is.", interacts,
			`{"key":{"type":"string","maxLength":50,"description":"a key's name, such as Enter or ArrowLeft, or one character"}}`, []string{"key"}, runPressKey},
		{"browser_hover", "Point at an element", "Moves the pointer over an element.", interacts,
			`{"element":` + elementProperty + `,"target":` + targetProperty + `}`, []string{"target"}, runHover},
		{"browser_drag", "Drag an element", "Drags one element onto another.", interacts,
			`{"startElement":` + elementProperty + `,"startTarget":` + targetProperty + `,"endElement":` + elementProperty + `,"endTarget":` + targetProperty + `}`, []string{"startTarget", "endTarget"}, runDrag},
		{"browser_file_upload", "Upload files", "Gives files of the workspace to the file chooser that a click has opened; without paths the chooser is cancelled.", interacts,
			`{"paths":{"type":"array","maxItems":20,"items":{"type":"string"},"description":"absolute paths in the workspace"}}`, nil, runUpload},
		{"browser_handle_dialog", "Answer a dialog", "Answers an alert, a confirmation or a prompt of the page.", interacts,
			`{"accept":{"type":"boolean"},"promptText":{"type":"string","maxLength":65536}}`, []string{"accept"}, runDialog},
		{"browser_tabs", "Tabs", "Lists, opens, closes or selects tabs.", moves,
			`{"action":{"type":"string","enum":["list","new","close","select"]},"index":{"type":"integer","minimum":0},"url":{"type":"string","description":"for new"}}`, []string{"action"}, runTabs},
		{"browser_console_messages", "Read the console", "Gives what the page wrote to its console.", reads,
			`{"level":{"type":"string","enum":["error","warning","info","debug"],"default":"info"},"all":{"type":"boolean","description":"since the session began, not since the last page"}}`, nil, runConsole},
		{"browser_network_requests", "List requests", "Lists the requests that the page made: method, address, status.", reads,
			`{"static":{"type":"boolean","default":false,"description":"pictures, fonts and scripts too"},"filter":{"type":"string","maxLength":500,"description":"only addresses that fit this regular expression"}}`, nil, runRequests},
		{"browser_wait_for", "Wait", "Waits until a text appears or goes, or for a time.", reads,
			`{"time":{"type":"number","minimum":0,"maximum":30,"description":"seconds"},"text":{"type":"string","maxLength":500},"textGone":{"type":"string","maxLength":500}}`, nil, runWait},
		{"browser_resize", "Set the page's size", "Sets the size of the page in pixels.", reads,
			`{"width":{"type":"integer","minimum":200,"maximum":4096},"height":{"type":"integer","minimum":200,"maximum":4096}}`, []string{"width", "height"}, runResize},
		{"browser_take_screenshot", "Take a picture", "Takes a picture of what the page shows, of one element, or of the whole page, cut to its bounds. Your person gets it as an artifact.", reads,
			`{"element":` + elementProperty + `,"target":` + targetProperty + `,"type":{"type":"string","enum":["png","jpeg"],"default":"png"},"fullPage":{"type":"boolean"}}`, nil, runScreenshot},
		{"browser_pdf_save", "Save as PDF", "Saves the page as a PDF, which your person gets as an artifact.", reads, `{}`, nil, runPDFSave},
		{"browser_read_pdf", "Read a PDF", "Gives the text of a PDF page by page. It is an artifact of this session: a page that was saved, or a download.", reads,
			`{"artifact":{"type":"string","maxLength":40,"description":"the id of an artifact of this session: a saved page or a download"},"first":{"type":"integer","minimum":1,"default":1},"last":{"type":"integer","minimum":1,"description":"at most 20 pages at once"}}`, []string{"artifact"}, runReadPDF},
		{"browser_pdf_pages", "Show a PDF's pages", "Gives pages of a PDF as pictures, which your person gets as artifacts too.", reads,
			`{"artifact":{"type":"string","maxLength":40,"description":"the id of an artifact of this session: a saved page or a download"},"first":{"type":"integer","minimum":1,"default":1},"last":{"type":"integer","minimum":1,"description":"at most 4 pages at once"}}`, []string{"artifact"}, runPDFPages},
		{"browser_close", "Close the browser", "Closes the browser; the next call starts a new one with nothing of this one.", reads, `{}`, nil, runClose},
	}
}

// definition is the tool as MCP lists it.
func (t tool) definition() mcp.Tool {
	required := t.required
	if required == nil {
		required = []string{}
	}
	names, err := json.Marshal(required)
	if err != nil { // strings
		panic(err)
	}
	d := mcp.NewToolWithRawSchema(t.name, t.description,
		json.RawMessage(`{"type":"object","properties":`+t.properties+`,"required":`+string(names)+`,"additionalProperties":false}`))
	readOnly, open := t.kind == reads, true
	d.Annotations = mcp.ToolAnnotation{Title: t.title, ReadOnlyHint: &readOnly, OpenWorldHint: &open}
	return d
}
