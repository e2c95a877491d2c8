//! A small HTTP client for jobs: blocking, over `wasi:http`, to where the module was granted it.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Failure, host};

#[cfg(target_family = "wasm")]
pub(crate) mod wire;

/// How many redirects are followed.
const REDIRECTS: u32 = 10;

/// Sends requests: see [`Context::http`](crate::Context::http).
///
/// ```
/// # use leasehold_guest::prelude::*;
/// # use leasehold_guest::http::Response;
/// # use leasehold_guest::testing::{self, MockContext, json};
/// #[job]
/// fn notify(ctx: &Context, order: u64) -> Result<String, Failure> {
///     let url = ctx.config("hook")?;
///     let token = ctx.secret("hook-token")?;
///     // 5xx and 429 may pass, so they are tried again; other errors are final.
///     let answer = ctx.http().post(&url).header("authorization", format!("Bearer {token}")).json(&order)?.send()?.ok()?;
///     answer.text()
/// }
/// # fn main() {
/// let mock = MockContext::new()
///     .with_config("hook", "https://hooks.example.com/orders")
///     .with_secret("hook-token", "very secret")
///     .with_http(|request| {
///         assert_eq!((request.method(), request.body()), ("POST", &b"7"[..]));
///         Ok(Response::new(200, "thanks"))
///     });
/// assert_eq!(testing::run(notify, &mock, json!(7)), Ok(json!("thanks")));
/// assert_eq!(mock.requests()[0].header("authorization"), Some("Bearer very secret"));
/// # }
/// ```
///
/// A request goes where the module was granted it at upload (`module push --allow-http https://hooks.example.com`),
/// redirects too. It has as long as the run has; [`RequestBuilder::timeout`] gives it less.
#[derive(Debug)]
pub struct Http<'a>(pub(crate) &'a host::Handle);

impl<'a> Http<'a> {
    /// Asks for what is at a URL: `https://host/path`, with a port where it is not the usual one.
    pub fn get(&self, url: impl Into<String>) -> RequestBuilder<'a> {
        self.request("GET", url)
    }

    /// Sends something to a URL.
    pub fn post(&self, url: impl Into<String>) -> RequestBuilder<'a> {
        self.request("POST", url)
    }

    /// Puts something at a URL.
    pub fn put(&self, url: impl Into<String>) -> RequestBuilder<'a> {
        self.request("PUT", url)
    }

    /// Removes what is at a URL.
    pub fn delete(&self, url: impl Into<String>) -> RequestBuilder<'a> {
        self.request("DELETE", url)
    }

    /// Any other method.
    pub fn request(&self, method: impl Into<String>, url: impl Into<String>) -> RequestBuilder<'a> {
        let request =
            Request { method: method.into(), url: url.into(), headers: Vec::new(), body: Vec::new(), timeout: None };
        RequestBuilder { host: self.0, request, redirects: REDIRECTS }
    }
}

/// A request in the making.
#[derive(Debug)]
pub struct RequestBuilder<'a> {
    host: &'a host::Handle,
    request: Request,
    redirects: u32,
}

impl RequestBuilder<'_> {
    /// Adds a header. `host`, `connection` and others that belong to the connection are the worker's to set, and
    /// refused.
    pub fn header(mut self, name: impl AsRef<str>, value: impl Into<String>) -> Self {
        self.request.headers.push((name.as_ref().to_ascii_lowercase(), value.into()));
        self
    }

    /// The body.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.request.body = body.into();
        self
    }

    /// The body as JSON, with the header that says so.
    ///
    /// # Errors
    /// [`Failure::Dead`] where it cannot be written as JSON.
    pub fn json(self, value: &impl Serialize) -> Result<Self, Failure> {
        let body = serde_json::to_vec(value)
            .map_err(|error| Failure::dead(format_args!("the body of a request is no JSON: {error}")))?;
        Ok(self.header("content-type", "application/json").body(body))
    }

    /// How long nothing may come: from the request to the response, and between two parts of it.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.request.timeout = Some(timeout);
        self
    }

    /// A redirect is the answer, and not followed.
    pub fn without_redirects(mut self) -> Self {
        self.redirects = 0;
        self
    }

    /// Sends it and reads the whole response, whatever its status: see [`Response::ok`].
    ///
    /// # Errors
    /// [`Failure::Dead`] where the request is not allowed or makes no sense, [`Failure::Retry`] where the network or
    /// the other side failed.
    pub fn send(self) -> Result<Response, Failure> {
        let Self { host, mut request, redirects } = self;
        for _ in 0..redirects {
            let response = host.send(&request)?;
            match request.redirected(&response)? {
                Some(next) => request = next,
                None => return Ok(response),
            }
        }
        let response = host.send(&request)?;
        if redirects > 0 && request.redirected(&response)?.is_some() {
            return Err(Failure::dead(format_args!(
                "{} redirects are too many; the last leads on from {}",
                redirects + 1,
                request.url
            )));
        }
        Ok(response)
    }
}

/// A request as it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    method: String,
    url: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    timeout: Option<Duration>,
}

impl Request {
    /// In capitals, as it was given.
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Whole.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The first with this name, which is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Empty where there is none.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// What to send instead, where a response says so. A body goes along where the status keeps the method; what proves
    /// who is asking stays with its own site.
    fn redirected(&self, response: &Response) -> Result<Option<Self>, Failure> {
        let keeps_method = match response.status {
            301..=303 => matches!(self.method.as_str(), "GET" | "HEAD"),
            307 | 308 => true,
            _ => return Ok(None),
        };
        let Some(location) = response.header("location") else { return Ok(None) };
        let url = resolve(&self.url, location)?;
        let mut next = Self { url, ..self.clone() };
        if !keeps_method {
            next.method = "GET".to_owned();
            next.body.clear();
            next.headers.retain(|(name, _)| !name.starts_with("content-"));
        }
        if site(&next.url)? != site(&self.url)? {
            // Whatever else a header is called, it may prove who is asking.
            next.headers
                .retain(|(name, _)| name == "user-agent" || name.starts_with("accept") || name.starts_with("content-"));
        }
        Ok(Some(next))
    }
}

/// A response, read to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Response {
    /// One for a test's [`MockContext::with_http`](crate::testing::MockContext::with_http).
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into() }
    }

    /// The same with a header.
    pub fn with_header(mut self, name: impl AsRef<str>, value: impl Into<String>) -> Self {
        self.headers.push((name.as_ref().to_ascii_lowercase(), value.into()));
        self
    }

    /// 200 and the like.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The first with this name, which is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// The body's bytes.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The body's bytes, to keep.
    pub fn into_body(self) -> Vec<u8> {
        self.body
    }

    /// The response, if it is what was asked for.
    ///
    /// # Errors
    /// [`Failure::Retry`] where the status says that it may pass (408, 425, 429, 5xx), after the time that the other
    /// side asks for (`retry-after`); [`Failure::Dead`] for all others but 2xx.
    pub fn ok(self) -> Result<Self, Failure> {
        const QUOTED: usize = 200;
        if (200..300).contains(&self.status) {
            return Ok(self);
        }
        let text = String::from_utf8_lossy(&self.body[..self.body.len().min(QUOTED)]);
        let message = format!("status {}: {text}", self.status);
        if !matches!(self.status, 408 | 425 | 429 | 500..) {
            return Err(Failure::dead(message));
        }
        let seconds = self.header("retry-after").and_then(|seconds| seconds.trim().parse().ok());
        Err(Failure::Retry { message, delay: seconds.map(Duration::from_secs) })
    }

    /// The body as text.
    ///
    /// # Errors
    /// [`Failure::Dead`] where it is none.
    pub fn text(self) -> Result<String, Failure> {
        String::from_utf8(self.body).map_err(|error| Failure::dead(format_args!("the response is no text: {error}")))
    }

    /// The body, read as JSON.
    ///
    /// # Errors
    /// [`Failure::Dead`] where it does not fit.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.body)
            .map_err(|error| Failure::dead(format_args!("the response does not fit: {error}")))
    }
}

/// Scheme, authority, and path with query, in which a fragment has no place.
fn parts(url: &str) -> Result<(&str, &str, &str), Failure> {
    let bad = || Failure::dead(format_args!("{url:?} is not a URL like https://host/path"));
    let (scheme, rest) = url.split_once("://").ok_or_else(bad)?;
    let rest = rest.split('#').next().unwrap_or_default();
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if authority.is_empty() || !matches!(scheme, "http" | "https") {
        return Err(bad());
    }
    Ok((scheme, authority, path))
}

/// Scheme and authority.
fn site(url: &str) -> Result<(&str, String), Failure> {
    let (scheme, authority, _) = parts(url)?;
    Ok((scheme, authority.to_ascii_lowercase()))
}

/// Where a `location` leads from a URL.
fn resolve(from: &str, location: &str) -> Result<String, Failure> {
    let (scheme, authority, path) = parts(from)?;
    let scheme_of =
        |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    if location.split_once("://").is_some_and(|(name, _)| scheme_of(name)) {
        return Ok(location.to_owned());
    }
    if let Some(elsewhere) = location.strip_prefix("//") {
        return Ok(format!("{scheme}://{elsewhere}"));
    }
    if location.starts_with('/') {
        return Ok(format!("{scheme}://{authority}{location}"));
    }
    let path = path.split('?').next().unwrap_or_default();
    if location.starts_with('?') {
        return Ok(format!("{scheme}://{authority}{path}{location}"));
    }
    let folder = path.rfind('/').map_or("/", |end| &path[..=end]);
    Ok(format!("{scheme}://{authority}{folder}{location}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MockContext;

    #[test]
    fn urls_come_apart_and_locations_lead_on() {
        assert_eq!(parts("https://a:8443/x?y#z"), Ok(("https", "a:8443", "/x?y")));
        assert_eq!(parts("http://a?y"), Ok(("http", "a", "?y")));
        assert!(parts("ftp://a/").is_err() && parts("https:///x").is_err() && parts("/x").is_err());
        for (location, wanted) in [
            ("http://b/", "http://b/"),
            ("//b/c", "https://b/c"),
            ("/c", "https://a/c"),
            ("/c?next=http://b/", "https://a/c?next=http://b/"),
            ("c", "https://a/x/c"),
            ("?c", "https://a/x/y?c"),
        ] {
            assert_eq!(resolve("https://a/x/y?z", location).as_deref(), Ok(wanted), "{location}");
        }
    }

    #[test]
    fn redirects_are_followed_and_a_token_stays_with_its_site() {
        let mock = MockContext::new().with_http(|request| {
            Ok(match request.url() {
                "https://a/1" => Response::new(302, "").with_header("Location", "/2"),
                "https://a/2" => Response::new(307, "").with_header("location", "https://b/3"),
                _ => Response::new(200, "there"),
            })
        });
        let sent = mock.http().post("https://a/1").header("Authorization", "secret").json(&1).expect("JSON").send();
        assert_eq!(sent.map(Response::into_body), Ok(b"there".to_vec()));
        let seen: Vec<_> = mock
            .requests()
            .iter()
            .map(|request| (request.method().to_owned(), request.header("authorization").is_some()))
            .collect();
        assert_eq!(seen, [("POST".to_owned(), true), ("GET".to_owned(), true), ("GET".to_owned(), false)]);
        assert_eq!(mock.requests()[1].header("content-type"), None);
        let first = mock.http().get("https://a/1").without_redirects().send().expect("an answer");
        assert_eq!(first.status(), 302);
    }

    #[test]
    fn a_ring_of_redirects_ends() {
        let mock = MockContext::new().with_http(|_| Ok(Response::new(302, "").with_header("location", "/")));
        let failure = mock.http().get("https://a/").send().expect_err("it never arrives");
        assert!(failure.message().is_some_and(|message| message.contains("too many")));
        assert_eq!(mock.requests().len(), 11);
    }

    #[test]
    fn a_status_is_tried_again_or_final() {
        assert!(Response::new(204, "").ok().is_ok());
        assert_eq!(Response::new(404, "no such").ok(), Err(Failure::dead("status 404: no such")));
        let busy = Response::new(429, "slow down").with_header("Retry-After", "7").ok();
        let delay = Some(Duration::from_secs(7));
        assert_eq!(busy, Err(Failure::Retry { message: "status 429: slow down".into(), delay }));
        assert!(matches!(Response::new(503, "").ok(), Err(Failure::Retry { delay: None, .. })));
    }

    #[test]
    fn without_a_grant_a_request_is_refused_and_says_which_flag_helps() {
        let failure = MockContext::new().http().get("https://a/").send().expect_err("nobody granted it");
        assert!(failure.message().is_some_and(|message| message.contains("--allow-http")), "{failure:?}");
    }
}
