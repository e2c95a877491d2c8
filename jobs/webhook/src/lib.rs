//! Tells another service that something happened: sends the payload, JSON as it is, to the URL that the module was
//! given, and answers what came back.
//!
//! ```json
//! { "event": "order.paid", "order": 7 }
//! ```
//!
//! The module gets at upload what it needs, and nothing else:
//!
//! ```console
//! $ leasehold secret set webhook-token < token.txt
//! $ leasehold module push webhook webhook.wasm --config url=https://hooks.example.com/orders \
//!       --secret webhook-token --allow-http https://hooks.example.com
//! ```
//!
//! Where the other side is down or busy, the job is tried again; where it says no, it is dead. It may get the same
//! event twice, under the same `idempotency-key`.

use std::time::Duration;

use leasehold_guest::http::Response;
use leasehold_guest::prelude::*;

/// How long the other side may take to say something.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much of an answer is kept.
const ANSWER_BYTES: usize = 1 << 10;

/// What came of it.
#[derive(Serialize)]
struct Output {
    status: u16,
    answer: String,
}

#[job]
fn webhook(ctx: &Context, event: Raw) -> Result<Output, Failure> {
    let url = ctx.config("url")?;
    let token = ctx.secret("webhook-token")?;
    let request = ctx
        .http()
        .post(&url)
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", "application/json")
        .header("idempotency-key", ctx.id().to_string())
        .timeout(PATIENCE)
        .body(event.0);
    let response = request.send()?.ok()?;
    info!("{} said {}", url, response.status());
    Ok(Output { status: response.status(), answer: excerpt(&response) })
}

fn excerpt(response: &Response) -> String {
    let body = response.body();
    String::from_utf8_lossy(&body[..body.len().min(ANSWER_BYTES)]).into_owned()
}

#[cfg(test)]
mod tests {
    use leasehold_guest::testing::{self, MockContext, json};

    use super::*;

    fn mock() -> MockContext {
        MockContext::new()
            .with_id(42)
            .with_config("url", "https://hooks.example.com/orders")
            .with_secret("webhook-token", "very secret")
    }

    #[test]
    fn the_event_arrives_as_it_is_and_says_who_sends_it() {
        let mock = mock().with_http(|_| Ok(Response::new(202, "thanks")));
        let result = testing::run(webhook, &mock, json!({ "order": 7 }));
        assert_eq!(result, Ok(json!({ "status": 202, "answer": "thanks" })));
        let [request] = &mock.requests()[..] else { panic!("{:?}", mock.requests()) };
        assert_eq!((request.method(), request.url()), ("POST", "https://hooks.example.com/orders"));
        assert_eq!(request.body(), br#"{"order":7}"#);
        assert_eq!(request.header("authorization"), Some("Bearer very secret"));
        assert_eq!(request.header("idempotency-key"), Some("42"));
    }

    #[test]
    fn a_busy_service_is_tried_again_and_a_no_is_final() {
        let answer = |status| {
            let mock = mock().with_http(move |_| Ok(Response::new(status, "no")));
            testing::run(webhook, &mock, json!({})).expect_err("it said no")
        };
        assert!(matches!(answer(503), Failure::Retry { .. }));
        assert_eq!(answer(400), Failure::dead("status 400: no"));
    }

    #[test]
    fn without_its_url_it_says_which_flag_is_missing() {
        let failure = testing::run(webhook, &MockContext::new(), json!({})).expect_err("no URL");
        assert!(failure.message().is_some_and(|message| message.contains("--config url=VALUE")));
    }
}
