package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/handlerd/handler/handlerd/api/types"
)

// cmdWebLogin gets a link from handler web and exchanges it as a browser does. It sets NAME to the Cookie header and
// NAME_TOKEN to the token header of the browser that is logged in then, NAME_LINK to what the link has behind its "#",
// WEB to the page's host:port and WEB_PORT to the port.
func cmdWebLogin(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: web-login NAME [FLAG…]")
	}
	out, err := of(ts).command(commandLimit, filepath.Join(of(ts).bin, "handler"), append([]string{"web", "--json"}, args[1:]...)...)
	var link types.WebLink
	if err == nil {
		err = json.Unmarshal([]byte(out[strings.IndexByte(out, '{'):]), &link)
	}
	if err != nil {
		ts.Fatalf("handler web: %v\n%s", err, out)
	}
	page, secret, _ := strings.Cut(link.URL, "/login#")
	host := strings.TrimPrefix(page, "http://")
	ts.Setenv("WEB", host)
	ts.Setenv("WEB_PORT", strconv.Itoa(link.Port))
	ts.Setenv(args[0]+"_LINK", secret)
	resp, _ := webAsk(ts, "POST", page+"/login", []string{"Origin: " + page, "Content-Type: application/json"}, `{"link":"`+secret+`"}`)
	if resp.StatusCode != http.StatusNoContent || len(resp.Cookies()) != 1 {
		ts.Fatalf("the login: %s %v", resp.Status, resp.Header)
	}
	cookie := "Cookie: " + resp.Cookies()[0].Name + "=" + resp.Cookies()[0].Value
	var me types.WebMe
	_, body := webAsk(ts, "GET", page+"/api/me", []string{cookie}, "")
	ts.Check(json.Unmarshal([]byte(body), &me))
	ts.Setenv(args[0], cookie)
	ts.Setenv(args[0]+"_TOKEN", types.HeaderToken+": "+me.Token)
}

// cmdWebAsk sends a request to a name under localhost with exactly these headers, and prints the status, the headers and
// the body, or with -only the body alone. A Host header among them is instead of the URL's; the path is sent as it is written. -body TEXT is before the
// method.
func cmdWebAsk(ts *testscript.TestScript, neg bool, args []string) {
	body, only := "", len(args) > 0 && args[0] == "-only"
	if only {
		args = args[1:]
	}
	if len(args) > 2 && args[0] == "-body" {
		body, args = args[1], args[2:]
	}
	if neg || len(args) < 2 {
		ts.Fatalf("usage: web-ask [-only] [-body TEXT] METHOD URL [HEADER…]")
	}
	resp, text := webAsk(ts, args[0], args[1], args[2:], body)
	if only {
		fmt.Fprintln(ts.Stdout(), text)
		return
	}
	fmt.Fprintln(ts.Stdout(), resp.Status)
	ts.Check(resp.Header.Write(ts.Stdout()))
	fmt.Fprintln(ts.Stdout(), text)
}

func webAsk(ts *testscript.TestScript, method, url string, headers []string, body string) (*http.Response, string) {
	host, path, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	_, port, err := net.SplitHostPort(host)
	ts.Check(err)
	c, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", port), commandLimit)
	ts.Check(err)
	defer c.Close()
	ts.Check(c.SetDeadline(time.Now().Add(commandLimit)))
	text := method + " /" + path + " HTTP/1.1\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n"
	said := false
	for _, h := range headers {
		text += h + "\r\n"
		said = said || strings.HasPrefix(h, "Host:")
	}
	if !said {
		text += "Host: " + host + "\r\n"
	}
	_, err = io.WriteString(c, text+"\r\n"+body)
	ts.Check(err)
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	ts.Check(err)
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	ts.Check(err)
	return resp, string(got)
}
