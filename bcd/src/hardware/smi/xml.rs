//! A walk over the elements of `nvidia-smi -q -x`: no more of XML than that tool writes, and a torn document does no harm.

/// What the walk meets.
pub(super) enum Met<'a> {
    /// An element begins; its tag as written.
    Begin(&'a str),
    /// An element without children ends; its text.
    Text(&'a str),
}

/// Meets every element with the path of names that leads to it, itself included.
pub(super) fn walk<'a>(xml: &'a str, mut meet: impl FnMut(&[&'a str], Met<'a>)) {
    let mut path: Vec<&str> = Vec::new();
    let mut rest = xml;
    while let Some(begin) = rest.find('<') {
        let text = &rest[..begin];
        let Some(end) = rest[begin..].find('>') else { break };
        let tag = &rest[begin + 1..begin + end];
        if let Some(name) = tag.strip_prefix('/') {
            meet(&path, Met::Text(text));
            if path.last() == Some(&name.trim()) {
                path.pop();
            }
        } else if !tag.starts_with(['!', '?']) && !tag.ends_with('/') {
            path.push(tag.split_whitespace().next().unwrap_or_default());
            meet(&path, Met::Begin(tag));
        }
        rest = &rest[begin + end + 1..];
    }
}
