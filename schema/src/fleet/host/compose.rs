//! [`compose`]: one machine's sections from the template of its pool and its own words.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{Content, HostTemplate, NodeOverlay};
use crate::{
    fleet::{
        stack,
        template::{self, RenderError, Renderer},
    },
    spec::{AccessKey, AccessSection, HostFile, HostSection, SecretVersion, Unit},
};

/// One machine's sections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Composed {
    /// What the host looks like.
    pub host: HostSection,
    /// Break-glass access.
    pub access: AccessSection,
}

/// Why a machine's sections cannot be made. A fleet that was loaded composes for its declared machines.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("template {template}, line {line}: {message}")]
pub struct ComposeError {
    /// The template's path.
    pub template: String,
    /// The line in it.
    pub line: u32,
    /// What is wrong.
    pub message: String,
}

/// Makes one machine's sections: a pure function of its arguments.
///
/// # Errors
/// When a template uses a value that this machine does not have, or does too much.
pub fn compose(template: &HostTemplate, overlay: &NodeOverlay, node: &str) -> Result<Composed, ComposeError> {
    let composed = stack::on(template::STACK, || {
        Composer::new(template)?
            .compose(overlay, node)
            .map_err(|failed| failed.into_iter().next().expect("what fails has an error"))
    });
    Ok(composed.unwrap_or_else(|| Err(RenderError::no_room()))?)
}

/// Makes the sections of many machines of one template, in their order: its texts are parsed once.
#[must_use]
pub fn compose_all(template: &HostTemplate, machines: &[(&NodeOverlay, &str)]) -> Vec<Result<Composed, ComposeError>> {
    let work = || {
        let composer = match Composer::new(template) {
            Ok(composer) => composer,
            Err(error) => return vec![Err(error); machines.len()],
        };
        let one = |(overlay, node): &(&NodeOverlay, &str)| {
            let failed = |errors: Vec<RenderError>| errors.into_iter().next().expect("what fails has an error");
            composer.compose(overlay, node).map_err(failed)
        };
        machines.iter().map(one).collect()
    };
    let composed = stack::on(template::STACK, work);
    let composed = composed.unwrap_or_else(|| vec![Err(RenderError::no_room()); machines.len()]);
    composed.into_iter().map(|composed| Ok(composed?)).collect()
}

/// A template whose texts were parsed once, to compose for many machines.
pub(in crate::fleet) struct Composer<'t> {
    template: &'t HostTemplate,
    renderer: Renderer<'t>,
    /// What every machine's texts see, made once.
    values: BTreeMap<String, minijinja::Value>,
}

/// The templates that files and units name, each once.
#[derive(Default)]
pub(in crate::fleet) struct Texts<'t> {
    /// Whose texts may differ from machine to machine.
    pub(in crate::fleet) apart: Vec<&'t str>,
    /// Whose texts are the same for every machine.
    pub(in crate::fleet) alike: Vec<&'t str>,
}

impl<'t> Composer<'t> {
    pub(in crate::fleet) fn new(template: &'t HostTemplate) -> Result<Self, RenderError> {
        let texts = template.templates.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        let value = |value: &Value| minijinja::Value::from(minijinja::value::Serde(value));
        let values = template.values.iter().map(|(root, known)| (root.clone(), value(known))).collect();
        Ok(Self { template, renderer: Renderer::new(texts)?, values })
    }

    /// What a machine's texts see.
    fn values(&self, overlay: &NodeOverlay, node: &str) -> minijinja::Value {
        let own = json!({ "name": node, "pool": self.template.pool, "labels": overlay.labels });
        let mut values = self.values.clone();
        values.insert("node".to_owned(), minijinja::Value::from(minijinja::value::Serde(own)));
        minijinja::Value::from(values)
    }

    /// The templates that are named.
    pub(in crate::fleet) fn texts(&self) -> Texts<'t> {
        let mut texts = Texts::default();
        for name in self.template.named().collect::<BTreeSet<_>>() {
            let text = self.template.templates.get(name).map_or("", String::as_str);
            // Only a template that has the word, or takes in another one, can speak of the machine.
            let apart = ["node", "include", "import", "extends"].iter().any(|word| text.contains(word));
            if apart { texts.apart.push(name) } else { texts.alike.push(name) }
        }
        texts
    }

    /// Whether all of some templates render for a machine.
    pub(in crate::fleet) fn renders(&self, texts: &[&str], overlay: &NodeOverlay, node: &str) -> bool {
        let values = self.values(overlay, node);
        texts.iter().all(|name| self.renderer.render(name, &values).is_ok())
    }

    /// Makes the sections, or says of every text why it cannot be rendered.
    pub(in crate::fleet) fn compose(&self, overlay: &NodeOverlay, node: &str) -> Result<Composed, Vec<RenderError>> {
        let template = self.template;
        let values = self.values(overlay, node);
        let mut failed = Vec::new();
        let mut text = |content: &Content| match content {
            Content::Text(text) => ended(text.clone()),
            Content::Secret(_) => String::new(),
            Content::Template(name) => match self.renderer.render(name, &values) {
                Ok(text) => ended(text),
                Err(error) => {
                    failed.push(error);
                    String::new()
                }
            },
        };
        let mut host = HostSection {
            sysctl: template.sysctl.clone(),
            modules: template.modules.clone(),
            kernel_args: template.kernel_args.clone(),
            hugepages: template.hugepages.clone(),
            packages: template.packages.clone(),
            drift: template.drift.clone(),
            ..HostSection::default()
        };
        for file in &template.files {
            host.files.push(HostFile {
                path: file.path.clone(),
                content: text(&file.content),
                secret: file.content.secret().map(|name| SecretVersion { name: name.clone(), version: 0 }),
                mode: file.mode.clone(),
                owner: file.owner.clone(),
                group: file.group.clone(),
                restart: file.restart.clone(),
            });
        }
        for unit in &template.units {
            host.units.push(Unit {
                name: unit.name.clone(),
                content: unit.content.as_ref().map(&mut text).unwrap_or_default(),
                enabled: unit.enabled,
                active: unit.active,
                drain: unit.drain,
            });
        }
        let keys = template.access.iter().map(|key| AccessKey {
            principal: key.principal.clone(),
            account: key.account.clone(),
            key: key.key.clone(),
            until: key.until,
        });
        let composed = Composed { host, access: AccessSection { keys: keys.collect() } };
        if failed.is_empty() { Ok(composed) } else { Err(failed) }
    }
}

/// A file on a host ends with a line end, however its text was written.
fn ended(mut text: String) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

impl From<RenderError> for ComposeError {
    fn from(error: RenderError) -> Self {
        Self { template: error.template, line: u32::try_from(error.line).unwrap_or(u32::MAX), message: error.message }
    }
}
