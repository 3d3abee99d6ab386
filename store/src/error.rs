//! What can go wrong between this process and PostgreSQL.
//!
//! Operations that can be refused have an enum of their own next to them; each of those wraps a [`DbError`] for the
//! rest.

use crate::rows::Unreadable;

/// What kind of failure a [`DbError`] is, for whoever decides whether to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DbErrorKind {
    /// PostgreSQL cannot be reached, is shutting down, or has no room or no use of its disk. Waiting helps.
    Unavailable,
    /// Another transaction was in the way (deadlock, serialisation), or somebody cancelled the statement. Running the
    /// transaction again helps.
    Contention,
    /// A constraint of a table refused the row.
    Constraint,
    /// A stored value does not decode: the row was not written by this version.
    Corrupt,
    /// Anything else: a mistake in this program or in the server's set-up.
    Other,
}

/// PostgreSQL did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct DbError {
    kind: DbErrorKind,
    constraint: Option<String>,
    text: String,
    row: Option<Box<Unreadable>>,
    remedy: Option<&'static str>,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl DbError {
    /// What kind of failure it is.
    #[must_use]
    pub const fn kind(&self) -> DbErrorKind {
        self.kind
    }

    /// Whether waiting for PostgreSQL helps.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        self.kind == DbErrorKind::Unavailable
    }

    /// Whether the constraint of this name refused a row.
    #[must_use]
    pub fn violates(&self, constraint: &str) -> bool {
        self.constraint.as_deref() == Some(constraint)
    }

    /// A stored value that this version cannot read.
    pub(crate) fn corrupt(what: &str, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self {
            kind: DbErrorKind::Corrupt,
            constraint: None,
            row: None,
            remedy: None,
            text: format!("the stored {what} is not readable"),
            source: Some(error.into()),
        }
    }

    /// The row that cannot be read, when it is known which.
    #[must_use]
    pub fn unreadable(&self) -> Option<&Unreadable> {
        self.row.as_deref()
    }

    /// What to do about it, where PostgreSQL answered and said why it does nothing.
    #[must_use]
    pub const fn remedy(&self) -> Option<&'static str> {
        self.remedy
    }

    /// A failure in words, without a cause from the driver.
    pub(crate) const fn other(text: String) -> Self {
        Self { kind: DbErrorKind::Other, constraint: None, text, row: None, remedy: None, source: None }
    }
}

impl From<sqlx::Error> for DbError {
    fn from(error: sqlx::Error) -> Self {
        let kind = kind(&error);
        let constraint = error.as_database_error().and_then(|e| e.constraint()).map(str::to_owned);
        let code = error.as_database_error().and_then(|answer| answer.code());
        if let Some((code, (state, remedy))) = code.as_deref().and_then(|code| Some((code, refusal(code)?))) {
            let text = format!("PostgreSQL {state} ({code})");
            return Self { kind, constraint, text, row: None, remedy: Some(remedy), source: Some(Box::new(error)) };
        }
        let text = match kind {
            DbErrorKind::Unavailable => "postgresql is not reachable",
            DbErrorKind::Contention => "another transaction was in the way",
            DbErrorKind::Constraint => "a constraint refused the row",
            DbErrorKind::Corrupt => "a stored value is not readable",
            DbErrorKind::Other => "postgresql refused the statement",
        };
        Self { kind, constraint, text: text.to_owned(), row: None, remedy: None, source: Some(Box::new(error)) }
    }
}

impl From<Unreadable> for DbError {
    fn from(row: Unreadable) -> Self {
        Self {
            kind: DbErrorKind::Corrupt,
            constraint: None,
            text: row.to_string(),
            row: Some(Box::new(row)),
            remedy: None,
            source: None,
        }
    }
}

/// No connection, no room, going away, no use of its disk; a server that only reads, and one that gave up a transaction in whose
/// middle nothing was said for too long.
const AWAY: [&str; 6] = ["08", "53", "57P", "58", "25006", "25P03"];

/// What a PostgreSQL says of itself that is there and does nothing, and what to do about it.
fn refusal(code: &str) -> Option<(&'static str, &'static str)> {
    Some(match code {
        "53100" => (
            "has no room left on its disk",
            "make room where its data and its write-ahead log are; it goes on by itself",
        ),
        "53200" => ("has no memory left", "give its host more memory, or its settings less of it"),
        "53300" => {
            ("has no connection left", "raise max_connections, or end what holds its connections (pg_stat_activity)")
        }
        "53400" => ("is at a limit of its configuration", "its log says which one; raise that"),
        "57P01" => ("ended the connection", "an operator did that, or it goes down; its log says which"),
        "57P02" => (
            "ended every connection, because a part of it crashed",
            "it comes back by itself; its log says what crashed",
        ),
        "57P03" => ("takes no connections yet", "it starts, recovers or goes down: wait, or look into its log"),
        "57P04" => ("has that database no more", "somebody dropped it: bring it back from a backup"),
        "25006" => ("only reads", "name the primary in DATABASE_URL, or end default_transaction_read_only"),
        code if code.starts_with("53") => ("lacks something that it needs", "its log says what"),
        code if code.starts_with("58") => ("cannot use its disk", "look at that disk, and into its log"),
        _ => return None,
    })
}

fn kind(error: &sqlx::Error) -> DbErrorKind {
    match error {
        // What is no answer of PostgreSQL's, as when a connection ends before it is one, says nothing about the statement.
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => DbErrorKind::Unavailable,
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => DbErrorKind::Corrupt,
        sqlx::Error::Database(error) => match error.code().as_deref() {
            Some(code) if AWAY.iter().any(|class| code.starts_with(class)) => DbErrorKind::Unavailable,
            Some("40001" | "40P01" | "55P03" | "57014") => DbErrorKind::Contention,
            Some(code) if code.starts_with("23") => DbErrorKind::Constraint,
            _ => DbErrorKind::Other,
        },
        _ => DbErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_transaction_that_the_server_gave_up_may_be_begun_again() {
        let test = crate::testing::TestDb::create().await;
        let db = crate::Db::connect(&test.config()).await.expect("a pool");
        let given_up = "DO $$ BEGIN RAISE EXCEPTION 'terminating' USING ERRCODE = '25P03'; END $$";
        let error = sqlx::query(given_up).execute(db.pool()).await.expect_err("given up");
        assert_eq!(DbError::from(error).kind(), DbErrorKind::Unavailable);
    }

    #[tokio::test]
    async fn a_server_that_is_there_and_does_nothing_is_told_in_its_own_words_with_what_to_do() {
        let test = crate::testing::TestDb::create().await;
        for (code, state) in [
            ("53100", "has no room left on its disk"),
            ("53200", "has no memory left"),
            ("53300", "has no connection left"),
            ("53400", "is at a limit"),
            ("53000", "lacks something"),
            ("57P01", "ended the connection"),
            ("57P03", "takes no connections yet"),
            ("58030", "cannot use its disk"),
            ("25006", "only reads"),
        ] {
            let raise = format!("DO $$ BEGIN RAISE EXCEPTION 'its own words' USING ERRCODE = '{code}'; END $$");
            let error = crate::testing::steal(test.db(), &raise).await.expect_err(code);
            let told = schema::cause::chain(&error);
            assert!(told.contains(&format!("PostgreSQL {state}")) && told.contains(code), "{told}");
            assert!(told.contains("its own words") && !told.contains("not reachable"), "{told}");
            assert!(error.is_unavailable() && error.remedy().is_some(), "{code}");
        }
    }

    #[tokio::test]
    async fn a_server_that_hangs_up_before_it_says_anything_is_away_and_refused_nothing() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

        // At once, after it was asked, and after half a word, as one says it that has no process to spare.
        for answer in [None, Some(""), Some("E")] {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("bound");
            let hangs_up = tokio::spawn(async move {
                while let Ok((mut wire, _)) = listener.accept().await {
                    if let Some(answer) = answer {
                        // Whatever it asks gets the same answer.
                        let _ = wire.read(&mut [0; 1_024]).await;
                        wire.write_all(answer.as_bytes()).await.ok();
                    }
                }
            });
            for mode in ["prefer", "disable"] {
                let url = format!("postgresql://a:b@{address}/c?sslmode={mode}");
                let options: sqlx::postgres::PgConnectOptions = url.parse().expect("a URL");
                let error = <sqlx::PgConnection as sqlx::Connection>::connect_with(&options).await.expect_err("nobody");
                assert_eq!(DbError::from(error).kind(), DbErrorKind::Unavailable, "{answer:?} {mode}");
            }
            hangs_up.abort();
        }
    }
}
