//! Templates: what they may, and every bound of what they take.

use super::*;
use crate::fleet::stack;

fn render(text: &str) -> Result<String, RenderError> {
    let values =
        Value::from(minijinja::value::Serde(serde_json::json!({"node": {"name": "n1", "labels": {"a": "b"}}})));
    stack::on(STACK, || Renderer::new([("t.j2", text)])?.render("t.j2", &values)).expect("room for a thread")
}

#[test]
fn numbers_are_multiplied_and_lists_are_not_repeated() {
    assert_eq!(render("{{ 6|times(7) }} {{ '2*3' }} {# 2 * 3 #}").as_deref(), Ok("42 2*3 "));
    for text in ["{{ [1] * 100000000 }}", "{% if 2 in [1]*90000000 %}x{% endif %}", "{{ 2 ** 40 }}"] {
        let error = render(text).expect_err("refused");
        assert_eq!(error.code, codes::TEMPLATE_LIMIT, "{text}");
        assert!(error.message.contains("times("), "{}", error.message);
    }
}

#[test]
fn numbers_are_added_and_lists_are_not() {
    let sums = "{{ 1 + 2 }}{% set n = 1 %}{{ n + 1 }}{{ 1+n }}{{ n|plus(n) }}{{ '+' ~ 'a+b' }}{%+ if n + 1 > 1 +%}x{% endif %}";
    assert_eq!(render(sums).as_deref(), Ok("3222+a+bx"));
    for text in
        ["{{ x + x }}", "{{ x + 1|list }}", "{{ x.1 + x }}", "{{ [1] + [1] }}", "{{ 'a' + x }}", "{{ x + 1[0] }}"]
    {
        let error = render(text).expect_err("refused");
        assert_eq!(error.code, codes::TEMPLATE_LIMIT, "{text}");
        assert!(error.message.contains("plus("), "{}", error.message);
    }
}

#[test]
fn lines_stay_as_they_are_and_tags_leave_none() {
    assert_eq!(
        render("a {{ node.name }}\n{% if true %}\nb < \"c\"\n{% endif %}\n"),
        Ok("a n1\nb < \"c\"\n".to_owned())
    );
}

#[test]
fn what_a_value_says_is_text_and_never_a_template() {
    let said = "{{ node.name }}{% if 1 %}";
    let text = format!("{{% set s = '{said}' %}}{{{{ s }}}}|{{{{ s|replace('name', 'name') }}}}");
    assert_eq!(render(&text), Ok(format!("{said}|{said}")));
}

#[test]
fn what_does_not_exist_is_an_error_with_its_place() {
    let error = render("ok\nx {{ node.labels.role }}\n").expect_err("undefined");
    assert_eq!((error.code, error.line), (codes::TEMPLATE_UNDEFINED, 2));
    assert!(error.message.contains("node.labels.role"), "{}", error.message);
    assert_eq!(render("{{ node.labels.role | default('x') }}"), Ok("x".to_owned()));
}

#[test]
fn bombs_are_stopped() {
    for text in [
        "{% for a in range(10000) %}{% for b in range(10000) %}x{% endfor %}{% endfor %}",
        "{% set s = 'aaaaaaaaaaaaaaaa' %}{% for a in range(100) %}{% set s = s ~ s %}{{ s }}{% endfor %}{{ 'a' * 1000000000 }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% include 't.j2' %}",
    ] {
        assert!(render(text).is_err(), "{text}");
    }
    let braces = "{% if 0 %}".to_owned() + &"{% elif 0 %}".repeat(50_000) + "{% endif %}";
    for text in
        ["not ", "1 ~ ", "-", "1 if 1 else ", "'}}' ~ "].map(|text| format!("{{{{ {}1 }}}}", text.repeat(50_000)))
    {
        assert_eq!(render(&text).map_err(|error| error.code), Err(codes::TEMPLATE_LIMIT));
    }
    assert_eq!(render(&braces).map_err(|error| error.code), Err(codes::TEMPLATE_LIMIT));
    assert!(render("{% raw %}{{ '{% endraw %} {{ node.name }}").is_ok());
    let deep = format!("{}1{}", "{{ ".to_owned() + &"(".repeat(1000), ")".repeat(1000) + " }}");
    assert_eq!(render(&deep).map_err(|error| error.code), Err(codes::TEMPLATE_SYNTAX));
}

/// Whatever could double what there is, and whatever makes much of little.
#[test]
fn the_memory_of_values_in_between_is_bounded() {
    let often = |text: &str| text.repeat(40);
    let texts = [
        "{% set s = 'aaaaaaaa' %}".to_owned() + &often("{% set s = s ~ s %}"),
        "{% set s = 'aaaaaaaa' %}".to_owned() + &often("{% set s = s + s %}"),
        "{% set s = 'aaaaaaaa' %}".to_owned() + &often("{% set s %}{{ s }}{{ s }}{% endset %}"),
        "{% set n = namespace(s='aaaaaaaa') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}".to_owned(),
        "{% macro m(s) %}{{ m(s ~ s) }}{% endmacro %}{{ m('aaaaaaaa') }}".to_owned(),
        "{% macro m(n) %}{% if n > 0 %}{{ m(n - 1) }}{{ m(n - 1) }}{% else %}aaaaaaaa{% endif %}{% endmacro %}{% set s = m(30) %}".to_owned(),
        "{% set s = 'aaaaaaaa' %}".to_owned() + &often("{% set s = s|replace('a', 'aa') %}"),
        "{% set s = 'aaaaaaaa' %}".to_owned() + &often("{% set s = [s, s]|join(s) %}"),
        "{% set s = 'x'|indent(1000000000) %}{{ 'a\\nb'|indent(1000000000) }}".to_owned(),
        "{{ '%1000000000d'|format(1) }}".to_owned(),
        "{% set s = range(5000)|join('%(a)s') %}{{ s|format(a=range(100000)|join)|length }}".to_owned(),
        "{{ [1]|batch(1000000000, 1)|list|length }}".to_owned(),
        "{{ [1]|slice(1000000000, 1)|list|length }}".to_owned(),
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}".to_owned(),
        "{{ range(100000)|list|map('string')|join('aaaaaaaaaaaaaaaa')|length }}".to_owned(),
        "{% set x = [1, 1] %}".to_owned() + &often("{% set x = [x, x] %}") + "{{ x }}",
        "{% set x = [1, 1] %}".to_owned() + &often("{% set x = [x, x] %}") + "{% set s = x|json %}",
        "{% set s = 'a' %}".to_owned() + &often("{% set s = s|escape ~ s|upper %}"),
        "{% set x = [1, 1] %}".to_owned() + &often("{% set x = x + x %}") + "{{ x|length }}{{ x|join }}",
    ];
    for text in &texts {
        let error = render(text).expect_err(text);
        assert_eq!(error.code, codes::TEMPLATE_LIMIT, "{text}: {error:?}");
    }
}

#[test]
fn nothing_outside_is_reachable() {
    for text in ["{{ debug() }}", "{% include '/etc/passwd' %}", "{{ env.HOME }}", "{{ now() }}"] {
        assert!(render(text).is_err(), "{text}");
    }
}

#[test]
fn what_a_template_reads_is_found_where_it_stands() {
    let text = "site.name {{ site.name }}\n{% if pool.labels.fabric == 'x' %}{{ node.name | upper }}{% endif %}{% set a = 1 %}{{ a }}";
    let found = stack::on(STACK, || reads("t.j2", text)).expect("room for a thread");
    let found: Vec<_> = found.iter().map(|(value, range)| (value.as_str(), range.start)).collect();
    assert_eq!(found, [("site.name", 13), ("pool.labels.fabric", 32), ("node.name", 63)]);
}

#[test]
fn literal_includes_are_found() {
    let text = "{% include 'a.j2' %}{%- import \"b.j2\" as b %}{% if 'c.j2' %}{% endif %}{% from 'd.j2' import x %}";
    assert_eq!(includes(text), BTreeSet::from(["a.j2", "b.j2", "d.j2"]));
}
