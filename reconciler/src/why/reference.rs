//! The reference page of every code, as text. A test holds the committed page and this together.

use std::fmt::Write as _;

use super::catalogue::{self, Area};

/// The page.
#[must_use]
pub fn page() -> String {
    let mut text = String::from(
        "# Codes that say \"not yet\" or \"no\"\n\n\
         `better-compute why node/NAME` and `better-compute why COMMAND` print those that apply, with what is true at that time;\n\
         `better-compute why CODE` prints one of these entries. This page is generated.\n",
    );
    for area in Area::ALL {
        write!(text, "\n## {}\n\n{}.\n\n", area.as_str(), area.about()).expect("a string takes text");
        text.push_str("| code | what it means | who can lift it | what that one does |\n|---|---|---|---|\n");
        for entry in catalogue::all().filter(|entry| entry.area == area) {
            let cell = |text: &str| text.replace('|', "\\|");
            writeln!(
                text,
                "| `{}` | {} | {} | {} |",
                entry.code,
                cell(entry.means),
                entry.lifted_by.in_words(),
                cell(entry.remedy)
            )
            .expect("a string takes text");
        }
    }
    text
}
