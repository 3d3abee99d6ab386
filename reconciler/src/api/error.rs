//! What a caller reads when something is not done: a stable code, a message, why, and the fields at fault.

use std::{error::Error, fmt};

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use store::{DbError, error::DbErrorKind, rows::UNREADABLE};

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal, $status:ident;)*) => {
        /// The stable codes of errors.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code { $($(#[$doc])* $variant,)* }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The word in an answer.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// The HTTP status of an answer with this code.
            #[must_use]
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$variant => StatusCode::$status,)* }
            }
        }
    };
}

codes! {
    /// The request is not of the form that the method takes.
    InvalidInput = "INVALID_INPUT", BAD_REQUEST;
    /// Nobody that is known here calls.
    Unauthenticated = "UNAUTHENTICATED", UNAUTHORIZED;
    /// The caller may not do this.
    AccessDenied = "ACCESS_DENIED", FORBIDDEN;
    /// There is no such thing.
    NotFound = "NOT_FOUND", NOT_FOUND;
    /// It changed in between, or the key was used for another request.
    Conflict = "CONFLICT", CONFLICT;
    /// It is in a state that does not allow this.
    InvalidState = "INVALID_STATE", CONFLICT;
    /// This cannot be done here.
    Unsupported = "UNSUPPORTED", UNPROCESSABLE_ENTITY;
    /// The request is longer than the method takes.
    TooLarge = "TOO_LARGE", PAYLOAD_TOO_LARGE;
    /// Too much at once.
    RateLimited = "RATE_LIMITED", TOO_MANY_REQUESTS;
    /// A row of the database is not what this program writes: the answer names it.
    RowUnreadable = "ROW_UNREADABLE", INTERNAL_SERVER_ERROR;
    /// A bug or a broken part; the log has it under the request's id.
    Internal = "INTERNAL", INTERNAL_SERVER_ERROR;
    /// The database is away, or the answer took too long.
    Unavailable = "UNAVAILABLE", SERVICE_UNAVAILABLE;
}

/// A field at fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its path in the request.
    pub name: String,
    /// What is wrong with it.
    pub message: String,
}

/// A refusal or a failure. The cause is for the log and never in the answer.
#[derive(Debug)]
pub struct ApiError {
    code: Code,
    message: String,
    why: Option<String>,
    fields: Vec<Field>,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

impl ApiError {
    /// An error with a code and a message.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), why: None, fields: Vec::new(), cause: None }
    }

    /// A field of the request is wrong.
    #[must_use]
    pub fn field(name: impl Into<String>, message: impl Into<String>) -> Self {
        let field = Field { name: name.into(), message: message.into() };
        let text = format!("{}: {}", field.name, field.message);
        Self { fields: vec![field], ..Self::new(Code::InvalidInput, text) }
    }

    /// There is no such thing.
    #[must_use]
    pub fn not_found(what: impl fmt::Display) -> Self {
        Self::new(Code::NotFound, format!("there is no {what}"))
    }

    /// Something broke here; the caller learns no more than that.
    #[must_use]
    pub fn internal(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            cause: Some(cause.into()),
            ..Self::new(Code::Internal, "something broke; the log has it under the request's id")
        }
    }

    /// Adds why.
    #[must_use]
    pub fn why(mut self, why: impl Into<String>) -> Self {
        self.why = Some(why.into());
        self
    }

    /// The code.
    #[must_use]
    pub const fn code(&self) -> Code {
        self.code
    }

    /// The message.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Why, or what to do about it.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// The fields at fault.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    pub(super) fn log(&self, request: &str) {
        let Some(cause) = &self.cause else { return };
        let mut chain = cause.to_string();
        let mut next = cause.source();
        while let Some(error) = next {
            chain.push_str(": ");
            chain.push_str(&error.to_string());
            next = error.source();
        }
        tracing::error!(request, code = self.code.as_str(), error = chain, "a request failed");
    }

    fn body(&self, request: &str) -> Value {
        let mut error = json!({ "code": self.code.as_str(), "message": self.message });
        if let Some(why) = &self.why {
            error["why"] = why.as_str().into();
        }
        error["fields"] =
            self.fields.iter().map(|field| json!({ "name": field.name, "message": field.message })).collect();
        error["requestId"] = request.into();
        json!({ "error": error })
    }

    pub(super) fn into_response(self, request: &str) -> Response {
        self.log(request);
        (self.code.status(), Json(self.body(request))).into_response()
    }
}

impl From<DbError> for ApiError {
    fn from(error: DbError) -> Self {
        let answer = match error.kind() {
            DbErrorKind::Unavailable => match error.remedy() {
                Some(remedy) => Self::new(Code::Unavailable, schema::cause::chain(&error)).why(remedy),
                None => Self::new(Code::Unavailable, "the database is away; try again"),
            },
            DbErrorKind::Corrupt => Self::new(Code::RowUnreadable, error.to_string()).why(format!(
                "{UNREADABLE}: somebody may have written into the database; better-compute why {UNREADABLE} says what to do"
            )),
            DbErrorKind::Contention | DbErrorKind::Constraint | DbErrorKind::Other => return Self::internal(error),
        };
        Self { cause: Some(error.into()), ..answer }
    }
}
