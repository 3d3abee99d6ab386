//! The router: from a request to a row of the table and back to an answer.

use std::{sync::Arc, time::Duration};

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{Path, Request, State},
    http::{HeaderValue, StatusCode, Uri, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use futures_util::StreamExt as _;
use schema::id::RequestId;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{
    ApiError, App, Code, auth, idempotency, openapi,
    table::{self, Handler, Method},
    text, webhook,
};

/// How many long requests are read and answered at once, and how long the next one waits for its turn.
static HEAVY: Semaphore = Semaphore::const_new(4);
const TURN: Duration = Duration::from_secs(20);

/// How many times the longest body is taken in before the connection is cut.
const HEARD: usize = 4;

/// How long a call of a method that does not exist may take, and one that is no method.
pub(super) const LIMIT: Duration = Duration::from_secs(30);

/// The routes of the API.
pub fn router(app: App) -> Router {
    Router::new()
        .route("/api/compute/{group}/{method}", post(call).fallback(only_post))
        .route("/api/openapi.json", get(description))
        .route("/healthz", get(health))
        .route("/hooks/source", post(webhook::receive).fallback(only_post))
        .fallback(unknown_path)
        .with_state(Arc::new(app))
}

/// An id that the answer, the log and the caller share.
pub(super) fn request_id() -> String {
    RequestId::generate().to_string()
}

async fn description() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], openapi::served())
}

async fn health(State(app): State<Arc<App>>) -> Response {
    match app.db.ping().await {
        Ok(()) => Json(json!({ "status": "ok" })).into_response(),
        Err(error) => {
            let status = error.remedy().map_or_else(|| "the database is away".to_owned(), |_| error.to_string());
            (StatusCode::SERVICE_UNAVAILABLE, Json(json!({ "status": status }))).into_response()
        }
    }
}

async fn only_post() -> Response {
    ApiError::new(Code::InvalidInput, "this takes POST").into_response(&request_id())
}

async fn unknown_path(uri: Uri) -> Response {
    let path: String = uri.path().chars().take(200).collect();
    ApiError::not_found(format!("path {path}"))
        .why("methods are at /api/compute/{group}/{method}, their description at /api/openapi.json")
        .into_response(&request_id())
}

async fn call(State(app): State<Arc<App>>, Path((group, name)): Path<(String, String)>, request: Request) -> Response {
    let id = request_id();
    let method = table::find(&group, &name);
    let limit = method.map_or(LIMIT, |method| method.deadline);
    let result = match tokio::time::timeout(limit, answer(&app, method, &group, &name, request)).await {
        Ok(result) => result,
        Err(_) => Err(ApiError::new(Code::Unavailable, "the answer took too long; try again")),
    };
    let mut response = match result {
        Ok(value) => Json(value).into_response(),
        Err(error) => error.into_response(&id),
    };
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert("x-request-id", value);
    }
    response
}

async fn answer(
    app: &App,
    method: Option<&Method>,
    group: &str,
    name: &str,
    request: Request,
) -> Result<Value, ApiError> {
    let (parts, body) = request.into_parts();
    let caller = auth::identify(&app.db, &parts.headers).await?;
    let method = method.ok_or_else(|| unknown_method(group, name))?;
    auth::authorize(&caller, method.scope, &method.full_name())?;
    let _turn = turn(method).await?;
    let input = read(body, method.max_body).await?;
    match &method.handler {
        Handler::Query(query) => query(app, &caller, input).await,
        Handler::Mutation(change) => idempotency::once(app, method, &caller, input, change).await,
    }
}

/// Long requests are taken few at a time.
async fn turn(method: &Method) -> Result<Option<SemaphorePermit<'static>>, ApiError> {
    if !method.is_heavy() {
        return Ok(None);
    }
    match tokio::time::timeout(TURN, HEAVY.acquire()).await {
        Ok(permit) => Ok(Some(permit.expect("the semaphore is never closed"))),
        Err(_) => Err(ApiError::new(Code::RateLimited, format!("too many calls of {} at once", method.full_name()))
            .why("try again in a minute")),
    }
}

/// The body of a request, when it is not too long.
pub(super) async fn bytes(body: Body, max: usize) -> Result<Bytes, ApiError> {
    let broken = |error| ApiError::new(Code::InvalidInput, "the request ended early").why(format!("{error}"));
    let mut chunks = body.into_data_stream();
    let mut read = Vec::new();
    let mut total = 0_usize;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(broken)?;
        total = total.saturating_add(chunk.len());
        if total <= max {
            read.extend_from_slice(&chunk);
        } else {
            read = Vec::new();
        }
        // Who is still sending reads no answer, so that what is too long is heard out for a while.
        if total > max.saturating_mul(HEARD) {
            break;
        }
    }
    if total > max {
        return Err(ApiError::new(Code::TooLarge, format!("a request of this method has at most {max} bytes")));
    }
    Ok(read.into())
}

async fn read(body: Body, max: usize) -> Result<Value, ApiError> {
    let bytes = bytes(body, max).await?;
    if bytes.is_empty() {
        return Ok(json!({}));
    }
    let value: Value = serde_json::from_slice(&bytes)
        .map_err(|e| ApiError::new(Code::InvalidInput, "the request is not JSON").why(e.to_string()))?;
    // No text that is stored can hold it.
    if schema::canonical::has_nul(&bytes) {
        return Err(ApiError::new(Code::InvalidInput, "a text in the request holds a NUL"));
    }
    if !value.is_object() {
        return Err(ApiError::new(Code::InvalidInput, "the request is not a JSON object"));
    }
    Ok(value)
}

fn unknown_method(group: &str, name: &str) -> ApiError {
    let wanted: String = format!("{group}.{name}").chars().take(100).collect();
    let names: Vec<String> = table::METHODS.iter().map(Method::full_name).collect();
    let error = ApiError::not_found(format!("method {wanted}"));
    match text::closest(&wanted, names.iter().map(String::as_str)) {
        Some(closest) => error.why(format!("did you mean {closest}?")),
        None => error.why(format!("the methods are {}", names.join(", "))),
    }
}
