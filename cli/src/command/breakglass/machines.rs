//! Whether there are such machines: asked before anybody signs for a name that is nobody's.

use schema::{fleet::similar, name::Name};
use serde_json::json;

use crate::{
    client::{Client, Target},
    exit::Failure,
    output::{note, text::printable},
    statement::refused,
};

/// So many names are looked at for the one that was probably meant.
const MOST: u32 = 200;

/// Refuses names that the control plane does not know. Where it cannot be asked, people decide: it is an emergency.
pub(super) async fn look_up(target: &Target, nodes: &[Name]) -> Result<(), Failure> {
    match strangers(target, nodes).await {
        Ok(strangers) => judge(&strangers),
        Err(failure) => {
            note(format!("whether there are such machines could not be looked up: {failure}"));
            Ok(())
        }
    }
}

/// A name that is no machine's, and the one that was probably meant.
type Stranger = (Name, Option<String>);

fn judge(strangers: &[Stranger]) -> Result<(), Failure> {
    let names: Vec<&str> = strangers.iter().map(|(name, _)| name.as_str()).collect();
    if names.is_empty() {
        return Ok(());
    }
    let failure = refused("no-machine", format!("no machine is called {}; nothing was signed", names.join(", ")));
    let near: Vec<String> =
        strangers.iter().filter_map(|(_, near)| Some(format!("node/{}", printable(near.as_deref()?)))).collect();
    Err(if near.is_empty() { failure } else { failure.hint(format!("did you mean {}?", near.join(", "))) })
}

async fn strangers(target: &Target, nodes: &[Name]) -> Result<Vec<Stranger>, Failure> {
    let client = Client::new(target)?;
    let beginning = async |prefix: &str| -> Result<Vec<String>, Failure> {
        let page = client.call("nodes.list", &json!({ "prefix": prefix, "limit": MOST })).await?;
        let names = page["items"].as_array().into_iter().flatten().filter_map(|node| node["name"].as_str());
        Ok(names.map(str::to_owned).collect())
    };
    let mut strangers = Vec::new();
    for node in nodes {
        if beginning(node.as_str()).await?.iter().any(|name| name == node.as_str()) {
            continue;
        }
        let others = beginning(&node.as_str()[..1]).await?;
        let near = similar(node.as_str(), others.iter().map(String::as_str)).map(str::to_owned);
        strangers.push((node.clone(), near));
    }
    Ok(strangers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn a_name_that_is_nobodys_is_refused_with_the_one_that_was_meant() {
        let name = |text: &str| Name::new(text).expect("a name");
        assert!(judge(&[]).is_ok());
        let failure =
            judge(&[(name("h100-10"), Some("h100-01".to_owned())), (name("other"), None)]).expect_err("refused");
        assert_eq!(failure.exit, Exit::Refused);
        assert_eq!(failure.message, "no machine is called h100-10, other; nothing was signed (no-machine)");
        assert_eq!(failure.hint.as_deref(), Some("did you mean node/h100-01?"));
        let failure = judge(&[(name("other"), None)]).expect_err("refused");
        assert!(failure.hint.is_some_and(|hint| hint.contains("get nodes")));
    }
}
