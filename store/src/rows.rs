//! Rows, one by one. Who writes into the database writes times, words and documents that this program cannot read: such a row
//! is left out and named, and keeps nobody from reading the others.
//!
//! A statement is checked when it is compiled, against a row's struct; what it finds is decoded here, each row by itself.

use schema::cause;
use sqlx::{FromRow, IntoArguments, PgExecutor, Postgres, Row as _, postgres::PgRow, query::Map};

use crate::DbError;

/// The stable word of what is said about a row that cannot be read.
pub const UNREADABLE: &str = "row-unreadable";

/// So much is told of what is wrong.
const TOLD: usize = 300;

/// A row that this version cannot read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the row of {table} with {key} cannot be read: {why}")]
pub struct Unreadable {
    /// The table.
    pub table: &'static str,
    /// What the row is found by there.
    pub key: String,
    /// What is wrong with it.
    pub why: String,
}

/// What a list has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed<T> {
    /// What could be read, in order.
    pub items: Vec<T>,
    /// What could not.
    pub unreadable: Vec<Unreadable>,
}

impl<T> Listed<T> {
    /// All of it, for whoever must not go on without a part.
    ///
    /// # Errors
    /// When a row cannot be read.
    pub fn whole(self) -> Result<Vec<T>, DbError> {
        self.unreadable.into_iter().next().map_or(Ok(self.items), |row| Err(row.into()))
    }
}

/// A row of a table, as a statement finds it.
pub(crate) trait Stored: for<'r> FromRow<'r, PgRow> + Send + Unpin {
    /// What it is read as.
    type Item;
    /// The table.
    const TABLE: &'static str;
    /// The columns that a row is found by; the statement has them under these names.
    const KEY: &'static [&'static str];

    /// Reads what the columns hold.
    fn read(self) -> Result<Self::Item, DbError>;
}

/// Every row that a statement finds.
pub(crate) async fn list<'q, R, F, A>(
    db: impl PgExecutor<'_>,
    query: Map<'q, Postgres, F, A>,
) -> Result<Listed<R::Item>, DbError>
where
    R: Stored,
    F: FnMut(PgRow) -> Result<R, sqlx::Error> + Send + 'q,
    A: IntoArguments<Postgres> + Send + 'q,
{
    Ok(read_all::<R>(&db.fetch_all(query).await?))
}

/// The row that a statement finds.
pub(crate) async fn find<'q, R, F, A>(
    db: impl PgExecutor<'_>,
    query: Map<'q, Postgres, F, A>,
) -> Result<Option<R::Item>, DbError>
where
    R: Stored,
    F: FnMut(PgRow) -> Result<R, sqlx::Error> + Send + 'q,
    A: IntoArguments<Postgres> + Send + 'q,
{
    Ok(db.fetch_optional(query).await?.map(|row| read::<R>(&row)).transpose()?)
}

pub(crate) fn read_all<R: Stored>(rows: &[PgRow]) -> Listed<R::Item> {
    let mut listed = Listed { items: Vec::with_capacity(rows.len()), unreadable: Vec::new() };
    for row in rows {
        match read::<R>(row) {
            Ok(item) => listed.items.push(item),
            Err(row) => listed.unreadable.push(row),
        }
    }
    listed
}

fn read<R: Stored>(row: &PgRow) -> Result<R::Item, Unreadable> {
    let decoded = R::from_row(row).map_err(|error| match error {
        sqlx::Error::ColumnDecode { index, source } => DbError::corrupt(index.trim_matches('"'), source),
        error => error.into(),
    });
    decoded.and_then(R::read).map_err(|error| {
        let why = cause::chain(&error).chars().take(TOLD).collect();
        Unreadable { table: R::TABLE, key: key::<R>(row), why }
    })
}

/// `name "k6", id 0193…`, of what can be read of it.
fn key<R: Stored>(row: &PgRow) -> String {
    let value = |column: &&str| {
        row.try_get::<&str, _>(*column)
            .map(|text| format!("{:?}", text.chars().take(80).collect::<String>()))
            .or_else(|_| row.try_get::<uuid::Uuid, _>(*column).map(|id| id.to_string()))
            .or_else(|_| row.try_get::<i64, _>(*column).map(|number| number.to_string()))
            .or_else(|_| row.try_get::<i32, _>(*column).map(|number| number.to_string()))
            .map_or_else(|_| format!("no readable {column}"), |value| format!("{column} {value}"))
    };
    R::KEY.iter().map(value).collect::<Vec<_>>().join(", ")
}
