//! `POST /hooks/source`: a git host says that something was pushed. It is a poke and nothing else.
//!
//! The request is authenticated before anything is made of it, and nothing in it is read: what was pushed is learned from
//! the repository. GitHub and Gitea sign the body (`X-Hub-Signature-256`), GitLab sends the secret (`X-Gitlab-Token`).

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::{Request, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use pki::shared_secret;
use serde_json::json;
use store::poke::Poke;
use tokio::sync::Semaphore;

use super::{ApiError, App, Code, dispatch, table::MAX_BODY};

/// Calls whose body is in memory at the same time: until it is whole nobody knows who sends it. Who finds no place in time
/// is told to come again, and the source looks by itself in the meantime.
static UNPROVEN: Semaphore = Semaphore::const_new(16);

/// Who may poke which source.
#[derive(Clone)]
pub struct Webhook {
    /// The source's name.
    pub source: String,
    /// What the git host was given.
    pub secret: String,
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook").field("source", &self.source).finish_non_exhaustive()
    }
}

pub(super) async fn receive(State(app): State<Arc<App>>, request: Request) -> Response {
    receive_within(dispatch::LIMIT, &app, request).await
}

/// Takes a call that arrives in time.
pub(super) async fn receive_within(limit: Duration, app: &App, request: Request) -> Response {
    let late = || ApiError::new(Code::Unavailable, "the call took too long to arrive; try again");
    match tokio::time::timeout(limit, poke(app, request)).await.unwrap_or_else(|_| Err(late())) {
        Ok(()) => (StatusCode::ACCEPTED, Json(json!({}))).into_response(),
        Err(error) => error.into_response(&dispatch::request_id()),
    }
}

async fn poke(app: &App, request: Request) -> Result<(), ApiError> {
    let webhook = app.webhook.as_ref().ok_or_else(|| ApiError::not_found("webhook configured here"))?;
    let (parts, body) = request.into_parts();
    let no_proof = || ApiError::new(Code::Unauthenticated, "the call carries no proof of the webhook's secret");
    if !may_be_authentic(&webhook.secret, &parts.headers) {
        return Err(no_proof());
    }
    let _place = UNPROVEN.acquire().await.expect("it is never closed");
    let body = dispatch::bytes(body, MAX_BODY).await?;
    if !is_authentic(&webhook.secret, &parts.headers, &body) {
        return Err(no_proof());
    }
    app.db.poke([Poke::Source(webhook.source.clone())]).await;
    Ok(())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The tag over the body that a call carries.
fn signature(headers: &HeaderMap) -> Option<Vec<u8>> {
    text(headers, "x-hub-signature-256")?.strip_prefix("sha256=").and_then(|tag| hex::decode(tag).ok())
}

fn has_secret(secret: &str, headers: &HeaderMap) -> bool {
    text(headers, "x-gitlab-token").is_some_and(|token| shared_secret::is_secret(secret.as_bytes(), token.as_bytes()))
}

/// Whether some body would prove the call.
fn may_be_authentic(secret: &str, headers: &HeaderMap) -> bool {
    if headers.contains_key("x-hub-signature-256") { signature(headers).is_some() } else { has_secret(secret, headers) }
}

fn is_authentic(secret: &str, headers: &HeaderMap, body: &[u8]) -> bool {
    if headers.contains_key("x-hub-signature-256") {
        return signature(headers).is_some_and(|tag| shared_secret::is_tag(secret.as_bytes(), body, &tag));
    }
    has_secret(secret, headers)
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_str(value).expect("a header"))])
    }

    #[test]
    fn a_signed_body_is_authentic_and_another_is_not() {
        let signature = "sha256=adbde1ce40c89c14215687d5d762a47df6dfaefcfad61e2e86718ffc8498571b";
        assert!(is_authentic("s3cret", &headers("x-hub-signature-256", signature), b"{}"));
        assert!(!is_authentic("s3cret", &headers("x-hub-signature-256", signature), b"{ }"));
        assert!(!is_authentic("other", &headers("x-hub-signature-256", signature), b"{}"));
        assert!(!is_authentic("s3cret", &headers("x-hub-signature-256", "sha256=zz"), b"{}"));
    }

    #[test]
    fn a_body_is_read_only_when_one_could_prove_the_call() {
        assert!(may_be_authentic("s3cret", &headers("x-hub-signature-256", "sha256=00")));
        assert!(!may_be_authentic("s3cret", &headers("x-hub-signature-256", "sha256=zz")));
        assert!(may_be_authentic("s3cret", &headers("x-gitlab-token", "s3cret")));
        assert!(!may_be_authentic("s3cret", &headers("x-gitlab-token", "other")));
        assert!(!may_be_authentic("s3cret", &HeaderMap::new()));
    }

    #[test]
    fn a_shared_token_is_compared_whole() {
        assert!(is_authentic("s3cret", &headers("x-gitlab-token", "s3cret"), b""));
        assert!(!is_authentic("s3cret", &headers("x-gitlab-token", "s3cre"), b""));
        assert!(!is_authentic("s3cret", &HeaderMap::new(), b""));
    }
}
