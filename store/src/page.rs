//! Pages of a list: ordered by a text key, continued after the last key of the page before.

use sqlx::{IntoArguments, PgExecutor, Postgres, postgres::PgRow, query::Map};

use crate::{
    DbError,
    rows::{self, Listed, Stored, Unreadable},
};

/// One page, and where the next one begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The items, in order.
    pub items: Vec<T>,
    /// Rows of this page that cannot be read.
    pub unreadable: Vec<Unreadable>,
    /// Pass it as `after` for the next page; `None` on the last one.
    pub next: Option<String>,
}

/// The longest page that is answered.
pub const MAX_LIMIT: u32 = 1_000;

/// How many rows to read for a page of `limit`: one more, which says whether there is a next page.
pub(crate) fn rows(limit: u32) -> (u32, i64) {
    let limit = limit.clamp(1, MAX_LIMIT);
    (limit, i64::from(limit) + 1)
}

/// A page from a statement that finds up to `limit` + 1 rows; `place` is where a row stands in the order of the list.
pub(crate) async fn read<'q, R, F, A>(
    db: impl PgExecutor<'_>,
    query: Map<'q, Postgres, F, A>,
    limit: u32,
    place: impl Fn(&PgRow) -> Result<String, sqlx::Error>,
) -> Result<Page<R::Item>, DbError>
where
    R: Stored,
    F: FnMut(PgRow) -> Result<R, sqlx::Error> + Send + 'q,
    A: IntoArguments<Postgres> + Send + 'q,
{
    let mut found = db.fetch_all(query).await?;
    let more = found.len() > limit as usize;
    found.truncate(limit as usize);
    let last = || found.iter().rev().find_map(|row| place(row).ok());
    let next = if more { last() } else { None };
    let Listed { items, unreadable } = rows::read_all::<R>(&found);
    Ok(Page { items, unreadable, next })
}
