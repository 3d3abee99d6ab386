//! `access`: who may call the API, and by which policies. Roles are Cedar policies in `*.cedar` files of the repository.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{form, words_of};
use crate::{
    diagnostic::{SourceRef, codes},
    fleet::{
        Located,
        decode::{Findings, Subject},
    },
    name::Name,
};

/// An access document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ApiAccess {
    /// Its name.
    pub name: Name,
    /// Where it is defined.
    #[serde(skip)]
    pub at: SourceRef,
    /// The OIDC issuer whose tokens are meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<Located<String>>,
    /// The audience that the tokens name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<Located<String>>,
    /// The claims that a token carries, all of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub claims: BTreeMap<String, Located<String>>,
    /// Names of API tokens, in place of an issuer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub token: Vec<Located<String>>,
    /// The policies that hold, by their paths from the fleet's root.
    pub policy: Vec<Located<String>>,
}

pub(in crate::fleet) fn decode(subject: &mut Subject<'_>, findings: &mut Findings<'_>) -> Option<ApiAccess> {
    let fields = &mut subject.fields;
    let issuer = form::keep(fields.text("issuer", findings), "an https:// address", form::https, findings);
    let access = ApiAccess {
        name: subject.name.clone(),
        at: subject.at.clone(),
        issuer,
        audience: fields.line("audience", findings),
        claims: words_of("claims", fields, findings),
        token: fields.lines("token", findings),
        policy: fields.texts("policy", findings),
    };
    if !fields.has("policy") {
        fields.require("policy", None::<()>);
    }
    fields.filled("policy", access.policy.is_empty(), findings);
    fields.filled("claims", access.claims.is_empty(), findings);
    fields.filled("token", access.token.is_empty(), findings);
    for policy in access.policy.iter().filter(|policy| !policy.ends_with(".cedar")) {
        form::refuse(codes::BAD_VALUE, policy, "the path of a *.cedar file", findings);
    }
    match (fields.has("issuer"), fields.has("token")) {
        (false, false) => {
            let diagnostic = findings
                .at(codes::MISSING_KEY, subject.at.span, "access says who: an `issuer` with `claims`, or a `token`")
                .help("token \"ci\", or issuer \"https://…\" and claims { group \"operators\" }");
            findings.push(diagnostic);
        }
        (true, true) => {
            let at = access.token.first().map_or(&subject.at, |token| &token.at);
            let diagnostic = findings.at(codes::CONFLICT, at.span, "`token` and `issuer` exclude each other");
            findings.push(diagnostic);
        }
        (true, false) if !fields.has("claims") => {
            let at = access.issuer.as_ref().map_or(&subject.at, |issuer| &issuer.at);
            let diagnostic = findings
                .at(codes::MISSING_KEY, at.span, "without `claims` everybody whom this issuer knows would be let in")
                .help("claims { group \"operators\" }");
            findings.push(diagnostic);
        }
        (true | false, _) => {}
    }
    Some(access)
}
