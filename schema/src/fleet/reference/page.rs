//! Pages.
use super::KindDoc;
/// x
pub fn codes_page() -> String {
    String::new()
}
/// x
pub fn index_page() -> String {
    String::new()
}
/// x
pub fn kind_page(_: &KindDoc) -> String {
    String::new()
}
