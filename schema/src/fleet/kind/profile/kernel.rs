//! The kernel of a host: parameters, modules, command line and huge pages.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::form;
use crate::{
    diagnostic::codes,
    fleet::{
        ByteSize, Located,
        decode::{Fields, Findings, lone, text},
        doc::{Entry, Scalar},
    },
};

/// A kernel module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct Module {
    /// Options as modprobe.d takes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<Located<String>>,
    /// Whether the module is kept from loading instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blacklist: Option<Located<bool>>,
}

/// Kernel modules and command line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct Kernel {
    /// Modules by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub module: BTreeMap<String, Located<Module>>,
    /// Command line arguments, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<Located<String>>,
}

impl Kernel {
    /// Whether nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.module.is_empty() && self.args.is_empty()
    }
}

pub(super) fn sysctl(entry: &Entry, findings: &mut Findings<'_>) -> Option<Located<String>> {
    let key = findings.located(entry.key.clone(), entry.span);
    form::keep(Some(key), "a kernel parameter such as net.core.somaxconn", form::sysctl_key, findings)?;
    let arg = lone(entry, "a number or a text", findings)?;
    match &arg.value {
        Scalar::Int(number) => Some(findings.located(number.to_string(), arg.span)),
        Scalar::Bool(flag) => {
            let help = format!("write {}", i32::from(*flag));
            let diagnostic = findings
                .at(codes::WRONG_TYPE, arg.span, "a kernel parameter is a number or a text, and this is a boolean")
                .help(help);
            findings.push(diagnostic);
            None
        }
        Scalar::Text(_) | Scalar::Float => form::keep(text(arg, findings), "a text on one line", form::line, findings),
    }
}

pub(super) fn decode(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> Kernel {
    let mut module = fields.named("module", ("name", Some("options")), findings, |_, fields, findings| {
        Some(Module {
            options: form::keep(fields.text("options", findings), "module options on one line", form::line, findings),
            blacklist: fields.boolean("blacklist", findings).filter(|blacklist| blacklist.value),
        })
    });
    let lists = [("modules", false), ("blacklist", true)];
    for (key, blacklist) in lists {
        for name in fields.texts(key, findings) {
            let blacklist = blacklist.then(|| Located::new(true, name.at.clone()));
            if let Some(first) = module.get(&name.value) {
                let diagnostic = findings
                    .at(codes::DUPLICATE_KEY, name.at.span, format!("module {:?} is written twice", name.value))
                    .label("the second")
                    .also(&first.at, "the first");
                findings.push(diagnostic);
                continue;
            }
            module.insert(name.value, Located::new(Module { options: None, blacklist }, name.at));
        }
    }
    for (name, entry) in &module {
        let name = Located::new(name.clone(), entry.at.clone());
        form::keep(Some(name), "the name of a kernel module", form::module, findings);
    }
    let args = fields.texts("args", findings);
    let args = args
        .into_iter()
        .filter_map(|arg| form::keep(Some(arg), "one kernel argument without spaces", form::kernel_arg, findings))
        .collect();
    Kernel { module, args }
}

pub(super) fn hugepages(fields: &mut Fields<'_>, findings: &mut Findings<'_>) -> BTreeMap<String, Located<u32>> {
    let table = fields.table("hugepages", findings, |entry, findings| {
        let size = entry.key.parse::<ByteSize>().ok().filter(|size| matches!(size.0 >> 10, 2048 | 1_048_576));
        if size.is_none() {
            let size = findings.located(entry.key.clone(), entry.span);
            form::refuse(codes::BAD_VALUE, &size, "a page size, 2MiB or 1GiB", findings);
        }
        let count = Fields::integer_of(entry, (0, 1 << 24), findings);
        count.filter(|_| size.is_some())
    });
    let mut pages: BTreeMap<String, Located<u32>> = BTreeMap::new();
    for (size, count) in table {
        let size = size.parse::<ByteSize>().map_or(size, |size| size.to_string());
        if let Some(first) = pages.get(&size) {
            let diagnostic = findings
                .at(codes::DUPLICATE_KEY, count.at.span, format!("pages of {size} are counted twice"))
                .label("the second")
                .also(&first.at, "the first");
            findings.push(diagnostic);
            continue;
        }
        pages.insert(size, count);
    }
    pages
}
