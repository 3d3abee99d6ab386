//! Edits: in the style that is there, nothing else touched, whatever the value.

use proptest::prelude::*;

use super::*;

fn args(entries: &[Entry], found: &mut Vec<Arg>) {
    for entry in entries {
        found.extend(entry.args.iter().cloned());
        args(&entry.fields, found);
    }
}

fn values(path: &str, file: &[u8]) -> Vec<Arg> {
    let parsed = read(file, Syntax::of(path).unwrap()).unwrap();
    let mut found = Vec::new();
    for object in &parsed.objects {
        args(&object.fields, &mut found);
    }
    found
}

/// The only value whose text is `old` becomes `new`.
fn edit(path: &str, file: &str, old: &str, new: NewValue) -> String {
    let is = |arg: &Arg| match &arg.value {
        Scalar::Text(text) => text == old,
        Scalar::Int(number) => number.to_string() == old,
        Scalar::Bool(flag) => flag.to_string() == old,
        Scalar::Float => false,
    };
    let found: Vec<Arg> = values(path, file.as_bytes()).into_iter().filter(is).collect();
    assert_eq!(found.len(), 1, "{old} in {file}");
    String::from_utf8(replace(path, file.as_bytes(), found[0].span, &new).unwrap()).unwrap()
}

fn text(text: &str) -> NewValue {
    NewValue::Text(text.to_owned())
}

#[test]
fn a_kdl_value_keeps_its_style() {
    let file = "// top\na \"x\" {\n  b word /- \"no\" c=\"q\" // c\n  d #\"r\\w\"# 12 #true\n  e \"\"\"\n    one\n    two\n    \"\"\" // after\n}\n";
    for (old, new, is) in [
        ("word", text("other-word"), "b other-word /- \"no\""),
        ("word", text("two words"), "b \"two words\" /- \"no\""),
        ("word", text("true"), "b \"true\" /-"),
        ("q", text("a \"b\" \\ c"), "c=\"a \\\"b\\\" \\\\ c\" // c"),
        ("q", text("a\n b"), "c=\"\"\"\n    a\n     b\n    \"\"\" // c"),
        ("r\\w", text("s\"#t"), "d ##\"s\"#t\"## 12"),
        ("12", NewValue::Integer(-7), "\"# -7 #true"),
        ("true", NewValue::Boolean(false), " 12 #false\n"),
        ("12", text("12"), "\"# \"12\" #true"),
        ("one\ntwo", text("three\n\n  four\n"), "e \"\"\"\n    three\n\n      four\n\n    \"\"\" // after"),
        ("one\ntwo", text("a \"\"\" b\n  \nc"), "e \"\"\"\n    a \"\"\\\" b\n     \\s\n    c\n    \"\"\" // after"),
    ] {
        let edited = edit("a.kdl", file, old, new);
        assert!(edited.contains(is), "{is}\n{edited}");
        assert!(edited.starts_with("// top\na \"x\" {\n  b "));
    }
}

#[test]
fn a_yaml_value_keeps_its_style() {
    let file = "# top\nkind: a\nname: x\nb: word # c\nc: 'single'\nd: \"double\" # d\ne:\n  - name: f\n    g: |\n      one\n      two\n    # after\n    h: >-\n      folded\n      text\n\n  - name: i\n    j: 12\n    k: true\nl: [m, n o]\n";
    for (old, new, is) in [
        ("word", text("/etc/other.conf"), "b: /etc/other.conf # c\n"),
        ("word", text("no"), "b: \"no\" # c\n"),
        ("word", text("0644"), "b: \"0644\" # c\n"),
        ("word", text("a: b #c"), "b: \"a: b #c\" # c\n"),
        ("word", text("a\nb\n"), "b: |\n  a\n  b # c\n"),
        ("single", text("it's"), "c: 'it''s'\n"),
        ("double", text("a\nb"), "d: \"a\\nb\" # d\n"),
        ("one\ntwo\n", text("three\n  four\n"), "g: |\n      three\n        four\n    # after\n"),
        ("one\ntwo\n", text(" lead"), "g: |2-\n       lead\n    # after\n"),
        ("folded text", text("one line"), "h: >-\n      one line\n\n  - name"),
        ("folded text", text("a\nb"), "h: |-\n      a\n      b\n\n  - name"),
        ("12", NewValue::Integer(13), "j: 13\n"),
        ("true", NewValue::Boolean(false), "k: false\n"),
        ("n o", text("p, q"), "l: [m, \"p, q\"]\n"),
        ("m", text("p\nq"), "l: [\"p\\nq\", n o]\n"),
    ] {
        if is.contains("b # c") {
            // A comment cannot follow a block, so the value is quoted.
            assert!(edit("a.yaml", file, old, new).contains("b: \"a\\nb\\n\" # c\n"));
            continue;
        }
        let edited = edit("a.yaml", file, old, new);
        assert!(edited.contains(is), "{is}\n{edited}");
    }
}

#[test]
fn marks_and_line_ends_of_the_file_stay() {
    let file = "\u{feff}a \"x\" {\r\n  b \"c\"\r\n  d \"e\"\r\n}\r\n";
    assert_eq!(edit("a.kdl", file, "e", text("f\ng")), file.replace("\"e\"", "\"\"\"\r\n    f\r\n    g\r\n    \"\"\""));
}

#[test]
fn what_cannot_be_edited_says_so() {
    let file = b"a \"x\" {\n  b \"c\"\n}\n";
    let at = values("a.kdl", file)[0].span;
    let mut other = at;
    other.start += 1;
    let new = text("d");
    assert_eq!(replace("a.txt", file, at, &new), Err(EditError::Syntax("a.txt".to_owned())));
    assert!(matches!(replace("a.kdl", file, other, &new), Err(EditError::NotHere { .. })));
    assert!(matches!(replace("a.kdl", b"a \"x\" {", at, &new), Err(EditError::Unreadable { .. })));
    assert!(matches!(replace("a.kdl", b"a \"x\"\n", at, &new), Err(EditError::NotHere { .. })));
}

/// Where the block with this key or name is.
fn block(path: &str, file: &str, name: &str) -> Span {
    fn find(entries: &[Entry], name: &str) -> Option<Span> {
        entries.iter().find_map(|entry| {
            let arg = entry.args.first().filter(|arg| arg.value == Scalar::Text(name.to_owned()));
            let own = (entry.key == name).then_some(entry.span).or(arg.map(|arg| arg.span));
            own.or_else(|| find(&entry.fields, name))
        })
    }
    let parsed = read(file.as_bytes(), Syntax::of(path).unwrap()).unwrap();
    let name_of = |object: &Object| {
        object.name.clone().filter(|arg| arg.value == Scalar::Text(name.to_owned())).map(|arg| arg.span)
    };
    let found = parsed.objects.iter().find_map(|object| name_of(object).or_else(|| find(&object.fields, name)));
    found.unwrap_or_else(|| panic!("{name} in {file}"))
}

#[test]
fn a_key_is_added_as_the_block_is_written() {
    let kdl = "p \"x\" {\n  file \"/a\" mode=\"0644\" // a\n  file \"/b\" {\n    content \"c\" // in\n  }\n  file \"/c\" { content \"d\" }\n  file \"/d\" {}\n  file \"/e\" \\\n    mode=\"0600\"; z 1\n}\n";
    for (name, value, is) in [
        ("/a", text("root"), "file \"/a\" mode=\"0644\" owner=\"root\" // a\n"),
        ("/b", text("root"), "    content \"c\" // in\n    owner \"root\"\n  }\n"),
        ("/b", text("a\nb"), "    owner \"\"\"\n      a\n      b\n      \"\"\"\n  }\n"),
        ("/c", NewValue::Integer(5), "{ content \"d\"; owner 5 }\n"),
        ("/d", NewValue::Boolean(true), "{ owner #true }\n"),
        ("/e", text("root"), "mode=\"0600\" owner=\"root\"; z 1\n"),
        ("x", text("root"), "z 1\n  owner \"root\"\n}\n"),
    ] {
        let edited = insert("a.kdl", kdl.as_bytes(), block("a.kdl", kdl, name), "owner", &value).unwrap();
        let edited = String::from_utf8(edited).unwrap();
        assert!(edited.contains(is), "{is}\n{edited}");
    }
    let yaml = "kind: p # k\nname: x\nfile:\n  /a:\n    mode: \"0644\" # m\n    content: |\n      one\n\n  # between\n  /b: {mode: \"0600\"}\nunit:\n  - name: u\n    state: started\n  - name: v\n    state: stopped\n# end\n---\nkind: q\nname: y\na: b\n";
    for (name, value, is) in [
        ("/a", text("root"), "      one\n    owner: root\n\n  # between\n"),
        ("/b", text("root"), "{mode: \"0600\", owner: root}\n"),
        ("u", NewValue::Boolean(true), "    state: started\n    owner: true\n  - name: v\n"),
        ("v", text("a\nb"), "    state: stopped\n    owner: |-\n      a\n      b\n"),
        ("x", NewValue::Integer(5), "    state: stopped\nowner: 5\n# end\n---\n"),
        ("y", text("no"), "a: b\nowner: \"no\"\n"),
    ] {
        let edited = insert("a.yaml", yaml.as_bytes(), block("a.yaml", yaml, name), "owner", &value).unwrap();
        let edited = String::from_utf8(edited).unwrap();
        assert!(edited.contains(is), "{is}\n{edited}");
    }
    let twice = insert("a.kdl", kdl.as_bytes(), block("a.kdl", kdl, "/a"), "mode", &text("0600"));
    assert!(matches!(twice, Err(EditError::NotHere { .. })));
}

fn new_value() -> impl Strategy<Value = NewValue> {
    let nasty = prop::collection::vec(
        prop::sample::select(vec![
            "a",
            "b c",
            " ",
            "\n",
            "\t",
            "\"",
            "\"\"\"",
            "#",
            "##",
            "'",
            "\\",
            "\\n",
            ": ",
            " #",
            "-",
            "|",
            "{",
            "}",
            "//",
            "/*",
            "é",
            "\u{1f980}",
            "\u{1b}",
            "\u{202e}",
            "\u{85}",
            "\u{2028}",
            "\r",
            "true",
            "0x1",
            "%",
            "&",
            "*",
            "!",
            "`",
            "@",
        ]),
        0..12,
    );
    prop_oneof![
        4 => nasty.prop_map(|parts| NewValue::Text(parts.concat())),
        2 => "[a-z ]{0,20}".prop_map(NewValue::Text),
        1 => any::<i64>().prop_map(NewValue::Integer),
        1 => any::<bool>().prop_map(NewValue::Boolean),
    ]
}

fn kdl_file() -> impl Strategy<Value = String> {
    let literal = prop::sample::select(vec![
        "\"q\"",
        "bare",
        "#\"r\"#",
        "##\"r \"# s\"##",
        "12",
        "-3",
        "0x1f",
        "#true",
        "#false",
        "\"\"",
        "\"e\\n\\\"\"",
        "\"\"\"\n      l\n        m\n\n      \"\"\"",
        "#\"\"\"\n  r\\\n  \"\"\"#",
    ]);
    let tail =
        prop::sample::select(vec!["", " // c", " /* c */", " /- gone", ";", " {\n    z 1 // in\n  }", " k=\"v\""]);
    // These are no bare words.
    let is_word = |word: &String| !matches!(word.as_str(), "true" | "false" | "null" | "inf" | "nan");
    let key = "[a-z]{1,6}".prop_filter("a keyword", is_word);
    let node = (key, prop::collection::vec(literal, 1..3), tail)
        .prop_map(|(key, args, tail)| format!("  {key} {}{tail}\n", args.join(" ")));
    prop::collection::vec(node, 1..6).prop_map(|nodes| format!("// top\nkind \"x\" {{\n{}}}\n// end\n", nodes.concat()))
}

fn yaml_file() -> impl Strategy<Value = String> {
    let literal = prop::sample::select(vec![
        "plain",
        "two words",
        "'s''q'",
        "\"d\\n\"",
        "12",
        "0x1f",
        "true",
        "\"\"",
        "[a, 'b', 3]",
        "{k: v, l: \"w\"}",
        "|\n    l\n      m\n\n    n",
        "|-\n   l",
        ">\n  f\n  g",
        "|+\n  k\n\n",
        "|2\n    l\n",
        "'two\n  lines'",
        "plain\n  lines",
        "\n  - a\n  - b: c\n",
        "\n  m: n # in\n  o: |\n    p",
    ]);
    let tail = prop::sample::select(vec!["\n", "\n# c\n", "\n\n", "\n # deep\n"]);
    prop::collection::vec((literal, tail), 1..6).prop_map(|nodes| {
        let line = |(index, (value, tail)): (usize, &(&str, &str))| {
            let value = if *value == "\n  - a\n  - b: c\n" { "\n  - a\n  - b" } else { value };
            format!("k{index}: {value}{tail}")
        };
        format!("# top\nkind: a\nname: x\n{}", nodes.iter().enumerate().map(line).collect::<String>())
    })
}

/// Replaces one of the values and looks at what came of it with nothing but the parser.
fn changes_only_the_value(
    path: &str,
    file: &str,
    which: prop::sample::Index,
    new: &NewValue,
) -> Result<(), TestCaseError> {
    let before = values(path, file.as_bytes());
    let index = which.index(before.len());
    let edited = replace(path, file.as_bytes(), before[index].span, new);
    prop_assert!(edited.is_ok(), "{edited:?} of {:?} in\n{file}", before[index]);
    let edited = edited.unwrap();
    let after = values(path, &edited);
    prop_assert_eq!(before.len(), after.len());
    for (at, (was, is)) in before.iter().zip(&after).enumerate() {
        let want = match new {
            _ if at != index => was.value.clone(),
            NewValue::Text(text) => Scalar::Text(text.clone()),
            NewValue::Integer(number) => Scalar::Int(i128::from(*number)),
            NewValue::Boolean(flag) => Scalar::Bool(*flag),
        };
        prop_assert_eq!(&want, &is.value);
    }
    // A block value begins with the mark behind its key, on a line before.
    let upto = file[..before[index].span.start as usize].trim_end_matches([' ', '\n']);
    let upto = upto.rfind(['|', '>']).filter(|mark| upto.len() - mark <= 2).unwrap_or(upto.len());
    prop_assert_eq!(&edited[..upto], &file.as_bytes()[..upto]);
    let comments = |text: &str| {
        ["# top", "# c", "# deep", "# in", "// c", "/* c */", "/- gone", "// end"]
            .map(|comment| text.matches(comment).count())
    };
    prop_assert_eq!(comments(&String::from_utf8_lossy(&edited)), comments(file));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_edit_of_kdl_changes_only_the_value(file in kdl_file(), which in any::<prop::sample::Index>(), new in new_value()) {
        changes_only_the_value("a.kdl", &file, which, &new)?;
    }

    #[test]
    fn an_added_key_is_all_that_is_new(kdl in kdl_file(), yaml in yaml_file(), new in new_value()) {
        for (path, file) in [("a.kdl", &kdl), ("a.yaml", &yaml)] {
            let before = values(path, file.as_bytes());
            let edited = insert(path, file.as_bytes(), block(path, file, "x"), "added", &new);
            prop_assert!(edited.is_ok(), "{edited:?} in\n{file}");
            let after = values(path, &edited.unwrap());
            prop_assert_eq!(after.len(), before.len() + 1);
            prop_assert_eq!(&after[before.len()].value, &new.scalar());
        }
    }

    #[test]
    fn an_edit_of_yaml_changes_only_the_value(file in yaml_file(), which in any::<prop::sample::Index>(), new in new_value()) {
        changes_only_the_value("a.yaml", &file, which, &new)?;
    }
}
