//! Pages of a list: ordered by a text key, continued after the last key of the page before.

/// One page, and where the next one begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The items, in order.
    pub items: Vec<T>,
    /// Pass it as `after` for the next page; `None` on the last one.
    pub next: Option<String>,
}

/// The longest page that is answered.
pub const MAX_LIMIT: u32 = 1_000;

impl<T> Page<T> {
    /// A page from up to `limit` + 1 rows; `key` is what the list is ordered by.
    pub(crate) fn cut(mut items: Vec<T>, limit: u32, key: impl Fn(&T) -> String) -> Self {
        let limit = limit as usize;
        let more = items.len() > limit;
        items.truncate(limit);
        let next = if more { items.last().map(key) } else { None };
        Self { items, next }
    }
}

/// How many rows to read for a page of `limit`: one more, which says whether there is a next page.
pub(crate) fn rows(limit: u32) -> (u32, i64) {
    let limit = limit.clamp(1, MAX_LIMIT);
    (limit, i64::from(limit) + 1)
}
