//! `site`: a place with machines and gateways.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Hold, form, hold, labels};
use crate::{
    diagnostic::{SourceRef, codes},
    fleet::{
        Located,
        decode::{Fields, Findings, Subject},
    },
    name::Name,
};

/// A network of a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Network {
    /// Its address range, for example `10.20.0.0/16`.
    pub cidr: Located<String>,
    /// Its router.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<Located<String>>,
    /// Its VLAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<Located<u16>>,
    /// The size of its frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<Located<u16>>,
}

/// A site's document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Site {
    /// Its name.
    pub name: Name,
    /// Where it is defined.
    #[serde(skip)]
    pub at: SourceRef,
    /// The region it counts to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<Located<String>>,
    /// Free words, which templates see.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, Located<String>>,
    /// Where daemons reach a gateway, `host:port`, best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gateway: Vec<Located<String>>,
    /// Its networks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub network: BTreeMap<String, Located<Network>>,
    /// Why its machines are left as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<Located<Hold>>,
    /// Why it cannot be removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protect: Option<Located<String>>,
}

pub(in crate::fleet) fn decode(subject: &mut Subject<'_>, findings: &mut Findings<'_>) -> Option<Site> {
    let fields = &mut subject.fields;
    let gateways = fields.texts("gateway", findings);
    for later in ["boot", "bmc"] {
        fields.later(later, "it comes with provisioning", findings);
    }
    Some(Site {
        name: subject.name.clone(),
        at: subject.at.clone(),
        region: fields.line("region", findings),
        labels: labels(fields, findings),
        gateway: gateways
            .into_iter()
            .filter_map(|gateway| form::keep(Some(gateway), "host:port", form::endpoint, findings))
            .collect(),
        network: fields
            .named("network", ("name", Some("cidr")), findings, |_, fields, findings| network(fields, findings)),
        suspend: hold::hold("suspend", fields, findings),
        protect: hold::protect(fields, findings),
    })
}

fn network(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Option<Network> {
    let cidr = form::keep(fields.text("cidr", findings), "an address range such as 10.20.0.0/16", form::cidr, findings);
    let router = form::keep(fields.text("router", findings), "an address", form::address, findings);
    if let (Some(cidr), Some(router)) = (&cidr, &router)
        && !form::within(router, cidr)
    {
        let message = format!("the router {:?} is not in {:?}", router.value, cidr.value);
        let diagnostic = findings.at(codes::BAD_VALUE, router.at.span, message).also(&cidr.at, "the range");
        findings.push(diagnostic);
    }
    let network = Network {
        router,
        vlan: fields.integer("vlan", (1, 4094), findings),
        mtu: fields.integer("mtu", (576, 65_535), findings),
        cidr: fields.require("cidr", cidr)?,
    };
    Some(network)
}
