//! Turns Markdown that anybody may have written into HTML that is safe to show. Raw HTML comes out as text, and links and
//! images keep their address only where it is relative or leads to http, https or mailto.
//!
//! Example payload: `{"markdown": "# Hello\n\nSome *words*, <b>not</b> bold."}`

use leasehold_guest::prelude::*;
use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

/// The schemes that a link may have: none of these runs code.
const SCHEMES: [&str; 3] = ["http", "https", "mailto"];

#[derive(Deserialize)]
struct Input {
    markdown: String,
}

#[derive(Debug, PartialEq, Serialize)]
struct Output {
    html: String,
    words: usize,
    headings: Vec<Heading>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Heading {
    level: u8,
    text: String,
}

#[job]
fn markdown(_ctx: &Context, input: Input) -> Result<Output, Failure> {
    let mut outline = Outline::default();
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let events = Parser::new_ext(&input.markdown, options).map(harmless).inspect(|event| outline.note(event));
    let mut html = String::with_capacity(input.markdown.len() * 3 / 2);
    html::push_html(&mut html, events);
    info!("{} bytes of Markdown became {} bytes of HTML", input.markdown.len(), html.len());
    Ok(Output { html, words: outline.words, headings: outline.headings })
}

fn harmless(event: Event<'_>) -> Event<'_> {
    match event {
        Event::Html(raw) | Event::InlineHtml(raw) => Event::Text(raw),
        Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
            Event::Start(Tag::Link { link_type, dest_url: safe(dest_url), title, id })
        }
        Event::Start(Tag::Image { link_type, dest_url, title, id }) => {
            Event::Start(Tag::Image { link_type, dest_url: safe(dest_url), title, id })
        }
        event => event,
    }
}

/// The address, or nothing where its scheme is none of ours. A list of what is allowed, since there is always another
/// way to write `javascript:`.
fn safe(address: CowStr<'_>) -> CowStr<'_> {
    let end = address.find([':', '/', '?', '#']);
    match end.filter(|&end| address.as_bytes()[end] == b':') {
        Some(end) if !SCHEMES.iter().any(|scheme| address[..end].eq_ignore_ascii_case(scheme)) => CowStr::Borrowed(""),
        _ => address,
    }
}

/// What a table of contents needs, gathered while the document goes by.
#[derive(Default)]
struct Outline {
    words: usize,
    headings: Vec<Heading>,
    in_heading: bool,
}

impl Outline {
    fn note(&mut self, event: &Event<'_>) {
        match event {
            Event::Start(Tag::Heading { level, .. }) => {
                self.in_heading = true;
                self.headings.push(Heading { level: number(*level), text: String::new() });
            }
            Event::End(TagEnd::Heading(_)) => self.in_heading = false,
            Event::Text(text) | Event::Code(text) => {
                self.words += text.split_whitespace().count();
                self.add_to_heading(text);
            }
            Event::SoftBreak | Event::HardBreak => self.add_to_heading(" "),
            _ => (),
        }
    }

    fn add_to_heading(&mut self, text: &str) {
        if let Some(heading) = self.headings.last_mut().filter(|_| self.in_heading) {
            heading.text.push_str(text);
        }
    }
}

fn number(level: HeadingLevel) -> u8 {
    match level {
        HeadingLevel::H1 => 1,
        HeadingLevel::H2 => 2,
        HeadingLevel::H3 => 3,
        HeadingLevel::H4 => 4,
        HeadingLevel::H5 => 5,
        HeadingLevel::H6 => 6,
    }
}

#[cfg(test)]
mod tests {
    use leasehold_guest::testing::{self, MockContext, json};

    use super::*;

    fn render(markdown: &str) -> Output {
        super::markdown(&MockContext::new(), Input { markdown: markdown.to_owned() }).expect("Markdown has no errors")
    }

    #[test]
    fn markdown_becomes_html_with_its_outline() {
        let result = testing::run(markdown, &MockContext::new(), json!({ "markdown": "# One `two`\n\nthree *four*" }));
        let html = "<h1>One <code>two</code></h1>\n<p>three <em>four</em></p>\n";
        let headings = json!([{ "level": 1, "text": "One two" }]);
        assert_eq!(result, Ok(json!({ "html": html, "words": 4, "headings": headings })));
    }

    #[test]
    fn raw_html_comes_out_as_text() {
        let html = render("<script>alert(1)</script>\n\nand <b onclick=x>this</b>").html;
        assert!(!html.contains("<script") && !html.contains("<b "), "{html}");
        assert!(html.contains("&lt;script&gt;") && html.contains("&lt;b onclick=x&gt;"), "{html}");
    }

    #[test]
    fn links_that_run_code_lose_their_address() {
        for address in
            ["javascript:alert(1)", "JaVaScRiPt:alert(1)", "data:text/html,x", "&#106;avascript:x", "vbscript:x"]
        {
            let html = render(&format!("[link]({address}) ![image]({address}) <{address}>")).html;
            assert!(!html.contains("=\"javascript") && !html.contains("=\"J") && !html.contains("=\"data"), "{html}");
            assert!(html.contains("<a href=\"\">link</a> <img src=\"\" alt=\"image\" />"), "{html}");
        }
    }

    #[test]
    fn ordinary_links_keep_theirs() {
        for address in
            ["https://example.com/a:b", "HTTP://example.com", "mailto:a@example.com", "a/b:c", "#top", "?q=a:b"]
        {
            let html = render(&format!("[link]({address})")).html;
            assert_eq!(html, format!("<p><a href=\"{address}\">link</a></p>\n"));
        }
    }

    #[test]
    fn tables_work() {
        assert!(render("| a |\n| - |\n| b |").html.starts_with("<table>"));
    }
}
