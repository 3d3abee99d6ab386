//! Files of the daemon's own that hold several settings: one block of text for each, so that a change by somebody else can
//! be told setting by setting.

/// What a line or paragraph of such a file looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// `name = value` lines.
    Sysctl,
    /// One module a line.
    Load,
    /// `blacklist NAME` and `options NAME …` lines.
    Probe,
    /// One shell assignment.
    Boot,
    /// Paragraphs for one package each.
    Pins,
}

/// One setting in a shared file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The setting, as `explain` names it.
    pub path: String,
    /// What tells it from the others in the file.
    pub key: String,
    /// Its text, line ends included.
    pub text: String,
}

/// A file that is made of blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shared {
    /// What all its settings are part of, as `explain` names it.
    pub group: String,
    /// What it looks like.
    pub style: Style,
    /// What it begins with.
    pub header: &'static str,
    /// Its settings, in order.
    pub blocks: Vec<Block>,
}

impl Shared {
    /// The file's content.
    #[must_use]
    pub fn content(&self) -> String {
        self.content_with(self.blocks.iter().map(|block| block.text.as_str()))
    }

    /// The content with other texts for its settings.
    pub(crate) fn content_with<'a>(&self, texts: impl Iterator<Item = &'a str>) -> String {
        let mut content = self.header.to_owned();
        content.extend(texts);
        content
    }

    pub(super) fn add(&mut self, path: impl Into<String>, text: String) {
        let key = self.style.key(&text);
        self.blocks.push(Block { path: path.into(), key, text });
    }
}

impl Style {
    /// The settings in a text, each with what tells it from the others. Comments and empty lines are no settings.
    #[must_use]
    pub fn split(self, content: &str) -> Vec<(String, String)> {
        let lines = content.lines().filter(|line| !line.trim_start().starts_with('#'));
        let texts: Vec<String> = match self {
            Self::Pins => {
                let lines: Vec<&str> = lines.collect();
                let paragraphs = lines.split(|line| line.trim().is_empty()).filter(|lines| !lines.is_empty());
                paragraphs.map(|lines| format!("\n{}\n", lines.join("\n"))).collect()
            }
            Self::Boot => {
                let text: String =
                    lines.filter(|line| !line.trim().is_empty()).map(|line| format!("{line}\n")).collect();
                (!text.is_empty()).then_some(text).into_iter().collect()
            }
            _ => lines.filter(|line| !line.trim().is_empty()).map(|line| format!("{line}\n")).collect(),
        };
        texts.into_iter().map(|text| (self.key(&text), text)).collect()
    }

    /// The value of a setting, as a fleet file says it.
    #[must_use]
    pub fn value(self, text: &str) -> String {
        let words = |skip: usize| text.split_whitespace().skip(skip).collect::<Vec<_>>().join(" ");
        match self {
            Self::Sysctl => text.split_once('=').map_or(text, |(_, value)| value).trim().to_owned(),
            Self::Load => "loaded".to_owned(),
            Self::Probe if text.starts_with("blacklist") => "blacklisted".to_owned(),
            Self::Probe => words(2),
            Self::Boot => text.trim().to_owned(),
            Self::Pins => {
                let line = text.lines().find_map(|line| line.strip_prefix("Pin:"));
                let version = line.map(|line| line.trim().trim_start_matches("version").trim());
                version.unwrap_or_default().to_owned()
            }
        }
    }

    fn key(self, text: &str) -> String {
        match self {
            Self::Sysctl => text.split_once('=').map_or(text, |(name, _)| name).trim().to_owned(),
            Self::Load => text.trim().to_owned(),
            Self::Probe => text.split_whitespace().take(2).collect::<Vec<_>>().join(" "),
            Self::Boot => String::new(),
            Self::Pins => {
                text.lines().find_map(|line| line.strip_prefix("Package:")).unwrap_or_default().trim().to_owned()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_file_splits_into_the_settings_that_made_it() {
        let cases: [(Style, &[&str]); 4] = [
            (Style::Sysctl, &["vm.swappiness = 1\n", "net.ipv4.tcp_rmem = 1 2 3\n"]),
            (Style::Probe, &["blacklist nouveau\n", "options nvidia NVreg_X=1\n"]),
            (Style::Boot, &["GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX iommu=pt\"\n"]),
            (
                Style::Pins,
                &[
                    "\nPackage: a\nPin: version 1*\nPin-Priority: 1001\n",
                    "\nPackage: b\nPin: version 2\nPin-Priority: 1001\n",
                ],
            ),
        ];
        for (style, texts) in cases {
            let mut shared = Shared { group: "host.x".into(), style, header: "# ours\n", blocks: Vec::new() };
            for text in texts {
                shared.add("host.x.y", (*text).to_owned());
            }
            let split = style.split(&shared.content());
            let made: Vec<(String, String)> =
                shared.blocks.iter().map(|block| (block.key.clone(), block.text.clone())).collect();
            assert_eq!(split, made);
        }
    }

    #[test]
    fn the_value_of_a_setting_is_what_a_fleet_file_says() {
        assert_eq!(Style::Sysctl.value("net.ipv4.tcp_rmem = 1 2 3\n"), "1 2 3");
        assert_eq!(Style::Pins.value("\nPackage: a\nPin: version 1.2*\nPin-Priority: 9\n"), "1.2*");
        assert_eq!(Style::Probe.value("options nvidia NVreg_X=1 b=2\n"), "NVreg_X=1 b=2");
    }
}
