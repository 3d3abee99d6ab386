//! Repositories that want to be read as something else: no text of theirs reaches a reader as markup, steers a terminal,
//! or makes a comment longer than it may be.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{hundred, plan_of};
use crate::plan::{MARKDOWN_BYTES, Plan, RenderOptions, markdown, markdown_of_findings, render};

const PIECES: [&str; 24] = [
    "`",
    "```",
    "````````",
    "~~~",
    "|",
    "<script>alert(1)</script>",
    "</details>",
    "<!--",
    "-->",
    "@everyone",
    "@org/team",
    "[x](https://evil.example)",
    "https://evil.example",
    "![](https://evil.example/p.png)",
    "#1",
    "\n",
    "\r\n",
    "\u{1b}[2J",
    "\u{202e}",
    "\u{200b}",
    "\\",
    "$`x`$",
    "größer",
    "a",
];

/// What no reader can see.
const HIDDEN: [char; 2] = ['\u{202e}', '\u{200b}'];

fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(&PIECES[..]), 0..12).prop_map(|pieces| pieces.concat())
}

/// A plan with these words wherever a repository has a say.
fn plan(words: &[String], times: usize, long: usize) -> Plan {
    let word = |index: usize| words[index % words.len()].repeat(long);
    let mut plan = hundred();
    plan.base = Some(word(0));
    plan.commit = Some(word(1));
    let objects: Vec<Value> = (0..times)
        .map(|number| {
            let change = ["update", "create", "remove", "retain", "hold"][number % 5];
            json!({ "object": format!("profile/p{number}"), "change": change, "file": word(number), "line": 1, "reason": word(number + 1),
                "paste": word(number + 2), "fields": [
                    { "path": word(number), "before": word(number + 1), "after": word(number + 2), "place": word(number + 3) },
                    { "path": word(number + 1), "before": [word(number)], "after": [{ word(number): [word(number + 2), { "a": word(number) }] }] }] })
        })
        .collect();
    plan.objects = serde_json::from_value(objects.into()).expect("objects");
    plan.warnings = serde_json::from_value(
        (0..times)
            .map(|number| json!({ "object": "pool/a", "message": word(number), "place": word(number + 1) }))
            .collect(),
    )
    .expect("warnings");
    plan.brakes = serde_json::from_value(
        (0..times)
            .map(|number| json!({ "kind": "freeze", "name": word(number), "owner": word(number + 1), "reason": word(number + 2), "active": true, "machines": 3, "returns": { "live": 3 } }))
            .collect(),
    )
    .expect("brakes");
    for node in &mut plan.nodes {
        for held in &mut node.held {
            held.by = word(3);
        }
    }
    for effect in plan.effects.iter_mut().flat_map(|effects| &mut effects.items) {
        effect.subject = word(4);
        effect.cause = Some(word(5));
    }
    if let Some(bind) = &mut plan.bind {
        bind.trailer = word(6);
    }
    plan
}

/// What a reader of Markdown sees outside of code, by the rules of fences and code spans.
fn outside_of_code(comment: &str) -> String {
    let (mut out, mut fence) = (String::new(), None::<usize>);
    for line in comment.lines() {
        let ticks = line.len() - line.trim_start_matches('`').len();
        match fence {
            Some(open) => {
                if ticks >= open && line.trim_matches('`').is_empty() {
                    fence = None;
                }
            }
            None if ticks >= 3 => fence = Some(ticks),
            None => {
                let spans: Vec<&str> = line.split('`').collect();
                assert_eq!(spans.len() % 2, 1, "a code span does not end: {line}");
                out.extend(spans.into_iter().step_by(2));
                out.push('\n');
            }
        }
    }
    assert_eq!(fence, None, "a fence does not end");
    out
}

fn harmless(comment: &str) {
    assert!(comment.len() <= MARKDOWN_BYTES, "{} bytes", comment.len());
    assert!(comment.starts_with("<!-- better-compute:plan"));
    let text = outside_of_code(comment.split_once('\n').map_or("", |(_, rest)| rest));
    let folds = text.matches("<details").count();
    assert_eq!(text.matches("</details>").count(), folds);
    let ours = ["<details open>", "<details>", "</details>", "<summary>", "</summary>", "<sub>", "</sub>"];
    let bare = ours.iter().fold(text, |text, tag| text.replace(tag, ""));
    for foreign in ["<", ">", "@", "http", "script", "[x]", "\\", "~~~", "evil"] {
        assert!(!bare.contains(foreign), "{foreign} is outside of code:\n{bare}");
    }
    assert!(comment.chars().all(|c| c == '\n' || !c.is_control()));
    assert!(!comment.contains(HIDDEN));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn comments_are_harmless_and_short(words in prop::collection::vec(text(), 1..6), times in 0..60_usize, long in 1..40_usize) {
        let plan = plan(&words, times, long);
        let comment = markdown(&plan, &words[0]);
        harmless(&comment);
        prop_assert_eq!(&comment, &markdown(&plan, &words[0]));
        harmless(&markdown_of_findings(&words.concat().repeat(long), times, &words[0]));
    }

    #[test]
    fn terminals_are_not_steered(words in prop::collection::vec(text(), 1..6), times in 0..30_usize) {
        let page = render(&plan(&words, times, 1), RenderOptions::default());
        prop_assert!(page.chars().all(|c| c == '\n' || !c.is_control()));
        let hidden = page.contains(HIDDEN);
        prop_assert!(!hidden);
    }
}

#[test]
fn the_largest_plan_fills_the_comment_and_no_more() {
    let words: Vec<String> = PIECES.iter().map(|piece| (*piece).to_owned()).collect();
    let comment = markdown(&plan(&words, 2_000, 60), "");
    harmless(&comment);
    assert!(comment.len() > MARKDOWN_BYTES * 3 / 4, "{} bytes", comment.len());
    let mut many = plan_of(serde_json::to_value(hundred()).expect("a plan"));
    many.nodes = (0..100_000)
        .map(|number| {
            let mut node = many.nodes[number % 77].clone();
            node.node = format!("n{:x}-{number}", number % 977).parse().expect("a name");
            node.pool = Some(format!("pool-{}", number % 500).parse().expect("a name"));
            node
        })
        .collect();
    harmless(&markdown(&many, ""));
}
