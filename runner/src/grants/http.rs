//! Where a module's requests may go.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use anyhow::{Context as _, bail, ensure};
use serde::{Deserialize, Serialize};

/// A scheme, a host and a port: `https://api.example.com:443`; or `https://*.example.com` for every name below that
/// one, at any depth, and not for itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HttpRule {
    https: bool,
    below: bool,
    /// In lower case; of an IPv6 address without its brackets.
    host: String,
    port: u16,
}

impl HttpRule {
    /// `host` as a request has it, in lower case and without brackets.
    pub fn allows(&self, scheme: &str, host: &str, port: u16) -> bool {
        let is_host = if self.below {
            host.strip_suffix(&self.host)
                .and_then(|below| below.strip_suffix('.'))
                .is_some_and(|below| !below.is_empty())
        } else {
            host == self.host
        };
        is_host && port == self.port && scheme == self.scheme()
    }

    fn scheme(&self) -> &'static str {
        if self.https { "https" } else { "http" }
    }
}

impl FromStr for HttpRule {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let wanted = "write https://api.example.com, https://*.example.com or http://host:8080";
        let (https, rest) = match text.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            Some(_) | None => bail!("{text:?} is not a place for requests: {wanted}"),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        ensure!(
            !rest.contains(['/', '?', '#', '@']),
            "{text:?} says more than a host and a port, which is all that is checked: {wanted}"
        );
        let usual = if https { 443 } else { 80 };
        let (host, port) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, port)) => {
                host.parse::<Ipv6Addr>().with_context(|| format!("{text:?}: [{host}] is no IPv6 address"))?;
                (host, port.strip_prefix(':'))
            }
            None => rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port))),
        };
        let port = port.map_or(Ok(usual), str::parse).ok().filter(|port| *port > 0);
        let port = port.with_context(|| format!("{text:?} has no port from 1 to 65535: {wanted}"))?;
        let (below, host) = host.strip_prefix("*.").map_or((false, host), |host| (true, host));
        let host = host.to_ascii_lowercase();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        ensure!(!host.is_empty() && host.bytes().all(is_plain), "{text:?} names no host: {wanted}");
        // "*.com" is no site of anybody's.
        ensure!(!below || host.contains('.'), "{text:?} would allow all of a top-level domain: {wanted}");
        Ok(Self { https, below, host, port })
    }
}

impl fmt::Display for HttpRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { below, host, port, .. } = self;
        let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{}://{}{open}{host}{close}:{port}", self.scheme(), if *below { "*." } else { "" })
    }
}

impl TryFrom<String> for HttpRule {
    type Error = anyhow::Error;

    fn try_from(text: String) -> anyhow::Result<Self> {
        text.parse()
    }
}

impl From<HttpRule> for String {
    fn from(rule: HttpRule) -> Self {
        rule.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> HttpRule {
        text.parse().unwrap_or_else(|error| panic!("{error:#}"))
    }

    #[test]
    fn scheme_host_and_port_are_exact() {
        let api = rule("https://API.example.com");
        assert_eq!(api.to_string(), "https://api.example.com:443");
        assert!(api.allows("https", "api.example.com", 443));
        for (scheme, host, port) in [
            ("http", "api.example.com", 443),
            ("https", "api.example.com", 8443),
            ("https", "api.example.com.evil.com", 443),
            ("https", "evilapi.example.com", 443),
            ("https", "example.com", 443),
            ("https", "x.api.example.com", 443),
            ("https", "api.example.com.", 443),
        ] {
            assert!(!api.allows(scheme, host, port), "{scheme} {host} {port}");
        }
        assert!(rule("http://[::1]:8080/").allows("http", "::1", 8080));
        assert_eq!(rule("http://[::1]:8080").to_string(), "http://[::1]:8080");
    }

    #[test]
    fn a_wildcard_is_for_names_below_and_nothing_else() {
        let all = rule("https://*.example.com:8443");
        assert!(all.allows("https", "a.example.com", 8443) && all.allows("https", "a.b.example.com", 8443));
        for host in ["example.com", ".example.com", "badexample.com", "a.example.com.evil.com"] {
            assert!(!all.allows("https", host, 8443), "{host}");
        }
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in [
            "api.example.com",
            "ftp://a.b",
            "https://",
            "https://a.b/path",
            "https://u@a.b",
            "https://a.b:0",
            "https://a.b:65536",
            "https://*.com",
            "https://*",
            "https://a b",
            "https://[::1",
            "https://a*.example.com",
            "https://a.b:",
            "https://[x]",
        ] {
            assert!(text.parse::<HttpRule>().is_err(), "{text}");
        }
    }
}
