//! What a template puts together stays flat: a list, a dict or a namespace that it makes holds texts and numbers.
//!
//! A list that holds another one twice, which holds another one twice, is small in memory and endless when it is written,
//! compared or looked up, and none of that can be stopped midway. So whatever could hold a list twice takes nothing that
//! may be one, which is told by how it is written and before anything runs.

use std::ops::Range;

use minijinja::{
    machinery::{
        Span,
        ast::{BinOpKind, Call, CallArg, Expr, Filter, Macro, Stmt},
        parse,
    },
    syntax::SyntaxConfig,
};

/// Values from outside, and what is said of a loop, with what of them is a text or a number: they keep their names.
const KNOWN: [(&str, &[&str]); 6] = [
    ("fleet", &["name", "trust_domain"]),
    ("site", &["name", "region"]),
    ("pool", &["name", "site", "class", "profile"]),
    ("profile", &["name"]),
    ("node", &["name", "pool"]),
    ("loop", &["index", "index0", "revindex", "revindex0", "first", "last", "length", "depth", "depth0"]),
];
/// Functions that make something that holds others.
const MAKERS: [&str; 2] = ["dict", "namespace"];
/// Filters that put lists together.
pub(super) const NESTING: [&str; 5] = ["batch", "slice", "zip", "chain", "groupby"];
/// Filters whose result is a text, a number or a truth value, whatever they are given.
const SCALARS: [&str; 22] = [
    "abs",
    "bool",
    "capitalize",
    "count",
    "e",
    "escape",
    "float",
    "format",
    "indent",
    "int",
    "join",
    "json",
    "length",
    "lower",
    "plus",
    "replace",
    "round",
    "string",
    "times",
    "title",
    "trim",
    "upper",
];

/// What is refused, and where.
pub(super) type Refused = (Range<usize>, String);

/// Refuses a template that could make a list that holds lists of its own making. What does not parse is not looked at.
pub(super) fn check(name: &str, text: &str, syntax: SyntaxConfig) -> Result<(), Refused> {
    parse(text, name, syntax).map_or(Ok(()), |template| stmt(&template))
}

fn refuse<T>(span: Span, what: impl Into<String>) -> Result<T, Refused> {
    Err((span.start_offset as usize..span.end_offset as usize, what.into()))
}

fn stmts(body: &[Stmt<'_>]) -> Result<(), Refused> {
    body.iter().try_for_each(stmt)
}

fn stmt(stmt: &Stmt<'_>) -> Result<(), Refused> {
    match stmt {
        Stmt::Template(template) => stmts(&template.children),
        Stmt::EmitExpr(emit) => expr(&emit.expr),
        Stmt::EmitRaw(_) | Stmt::Continue(_) | Stmt::Break(_) => Ok(()),
        Stmt::ForLoop(each) => {
            binds(&each.target)?;
            expr(&each.iter)?;
            each.filter_expr.iter().try_for_each(expr)?;
            stmts(&each.body)?;
            stmts(&each.else_body)
        }
        Stmt::IfCond(cond) => {
            expr(&cond.expr)?;
            stmts(&cond.true_body)?;
            stmts(&cond.false_body)
        }
        Stmt::WithBlock(with) => {
            for (target, value) in &with.assignments {
                binds(target)?;
                expr(value)?;
            }
            stmts(&with.body)
        }
        Stmt::Set(set) => match &set.target {
            // An attribute of a namespace.
            Expr::GetAttr(_) => held(&set.expr),
            target => {
                binds(target)?;
                expr(&set.expr)
            }
        },
        Stmt::SetBlock(set) => {
            match (&set.target, &set.filter) {
                (Expr::GetAttr(_), Some(filter)) => held(filter)?,
                (Expr::GetAttr(_), None) => {}
                (target, filter) => {
                    binds(target)?;
                    filter.iter().try_for_each(expr)?;
                }
            }
            stmts(&set.body)
        }
        Stmt::AutoEscape(escape) => {
            expr(&escape.enabled)?;
            stmts(&escape.body)
        }
        Stmt::FilterBlock(block) => {
            expr(&block.filter)?;
            stmts(&block.body)
        }
        Stmt::Block(block) => stmts(&block.body),
        Stmt::Import(import) => refuse(
            import.span(),
            "a template is not imported as a whole, which would hold all that it has; write `from \"FILE\" import MACRO`",
        ),
        Stmt::FromImport(import) => {
            expr(&import.expr)?;
            import.names.iter().try_for_each(|(name, alias)| binds(alias.as_ref().unwrap_or(name)))
        }
        Stmt::Extends(extends) => expr(&extends.name),
        Stmt::Include(include) => expr(&include.name),
        Stmt::Macro(declared) => declares(declared),
        Stmt::CallBlock(block) => {
            call(&block.call)?;
            declares(&block.macro_decl)
        }
        Stmt::Do(statement) => call(&statement.call),
    }
}

fn declares(declared: &Macro<'_>) -> Result<(), Refused> {
    declared.args.iter().try_for_each(binds)?;
    declared.defaults.iter().try_for_each(expr)?;
    stmts(&declared.body)
}

/// What gets a value: names, of which those from outside are taken.
fn binds(target: &Expr<'_>) -> Result<(), Refused> {
    match target {
        Expr::Var(var) if MAKERS.contains(&var.id) || KNOWN.iter().any(|(name, _)| *name == var.id) => {
            refuse(var.span(), format!("`{}` is a name that is taken: give this value another one", var.id))
        }
        Expr::Var(_) => Ok(()),
        Expr::List(list) => list.items.iter().try_for_each(binds),
        Expr::Tuple(tuple) => tuple.items.iter().try_for_each(binds),
        other => refuse(other.span(), "an attribute of a namespace is set by itself"),
    }
}

/// Something that is evaluated, wherever its value goes.
fn expr(one: &Expr<'_>) -> Result<(), Refused> {
    match one {
        Expr::Const(_) => Ok(()),
        Expr::Var(var) if MAKERS.contains(&var.id) => {
            refuse(var.span(), format!("`{}` can only be called, by its name", var.id))
        }
        Expr::Var(_) => Ok(()),
        Expr::Slice(slice) => {
            expr(&slice.expr)?;
            [&slice.start, &slice.stop, &slice.step].into_iter().flatten().try_for_each(expr)
        }
        Expr::UnaryOp(unary) => expr(&unary.expr),
        Expr::BinOp(binary) => {
            expr(&binary.left)?;
            expr(&binary.right)
        }
        Expr::Compare(compare) => {
            expr(&compare.expr)?;
            compare.ops.iter().try_for_each(|op| expr(&op.expr))
        }
        Expr::IfExpr(choice) => {
            expr(&choice.test_expr)?;
            expr(&choice.true_expr)?;
            choice.false_expr.iter().try_for_each(expr)
        }
        Expr::Filter(filter) => {
            if NESTING.contains(&filter.name) {
                return refuse(
                    filter.span(),
                    format!("templates have no filter `{}`, which puts lists together", filter.name),
                );
            }
            if filter.name == "map" {
                maps(filter, filter.span())?;
            }
            filter.expr.iter().try_for_each(expr)?;
            filter.args.iter().try_for_each(argument)
        }
        Expr::Test(test) => {
            expr(&test.expr)?;
            test.args.iter().try_for_each(argument)
        }
        Expr::GetAttr(attr) => expr(&attr.expr),
        Expr::GetItem(item) => {
            expr(&item.expr)?;
            expr(&item.subscript_expr)
        }
        Expr::Call(one) => call(one),
        Expr::List(list) => list.items.iter().try_for_each(held),
        Expr::Tuple(tuple) => tuple.items.iter().try_for_each(held),
        Expr::Map(map) => map.keys.iter().chain(&map.values).try_for_each(held),
    }
}

fn argument(argument: &CallArg<'_>) -> Result<(), Refused> {
    match argument {
        CallArg::Pos(value) | CallArg::Kwarg(_, value) | CallArg::PosSplat(value) | CallArg::KwargSplat(value) => {
            expr(value)
        }
    }
}

fn call(call: &Call<'_>) -> Result<(), Refused> {
    match &call.expr {
        Expr::Var(var) if MAKERS.contains(&var.id) => call.args.iter().try_for_each(|argument| match argument {
            CallArg::Pos(value) | CallArg::Kwarg(_, value) => held(value),
            CallArg::PosSplat(value) | CallArg::KwargSplat(value) => {
                refuse(value.span(), format!("`{}` takes what is written there, one by one", var.id))
            }
        }),
        callee => {
            expr(callee)?;
            call.args.iter().try_for_each(argument)
        }
    }
}

/// `map` gives every item the same value when it is told a default: then the list holds that value many times.
fn maps(filter: &Filter<'_>, at: Span) -> Result<(), Refused> {
    let plain = filter.args.iter().enumerate().all(|(index, argument)| match argument {
        CallArg::Pos(Expr::Const(name)) if index == 0 => {
            name.value.as_str().is_some_and(|name| !["default", "d", "map"].contains(&name))
        }
        CallArg::Pos(_) => index > 0,
        CallArg::Kwarg(name, _) => *name != "default",
        CallArg::PosSplat(_) | CallArg::KwargSplat(_) => false,
    });
    if plain {
        return Ok(());
    }
    refuse(at, "`map` takes the written name of a filter or an attribute, and no default")
}

/// Something that becomes part of a list, a dict or a namespace.
fn held(value: &Expr<'_>) -> Result<(), Refused> {
    if !is_flat(value) {
        return refuse(
            value.span(),
            "a list, a dict or a namespace that a template makes holds texts and numbers, and this may be a list; write VALUE|string or VALUE|int",
        );
    }
    expr(value)
}

/// Whether a value cannot hold others, but for what is written there.
fn is_flat(value: &Expr<'_>) -> bool {
    match value {
        Expr::Const(_) | Expr::Test(_) | Expr::Compare(_) | Expr::UnaryOp(_) => true,
        // What is in them is looked at by itself.
        Expr::List(_) | Expr::Tuple(_) | Expr::Map(_) => true,
        Expr::BinOp(binary) => match binary.op {
            BinOpKind::ScAnd | BinOpKind::ScOr => is_flat(&binary.left) && is_flat(&binary.right),
            _ => true,
        },
        Expr::IfExpr(choice) => is_flat(&choice.true_expr) && choice.false_expr.as_ref().is_none_or(is_flat),
        Expr::Filter(filter) => SCALARS.contains(&filter.name),
        Expr::GetAttr(attr) => match &attr.expr {
            Expr::Var(root) => KNOWN.iter().any(|(name, words)| *name == root.id && words.contains(&attr.name)),
            Expr::GetAttr(labels) if labels.name == "labels" => {
                matches!(&labels.expr, Expr::Var(root) if matches!(root.id, "node" | "site" | "pool"))
            }
            _ => false,
        },
        Expr::Var(_) | Expr::Slice(_) | Expr::GetItem(_) | Expr::Call(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        diagnostic::codes,
        fleet::{
            stack,
            template::{RenderError, Renderer, STACK},
        },
    };

    fn render(text: &str) -> Result<String, RenderError> {
        let values = serde_json::json!({
            "node": {"name": "n1", "labels": {"a": "b"}},
            "site": {"name": "s", "network": {"x": {"vlan": 5}, "y": {"vlan": 6}}},
        });
        let values = minijinja::Value::from(minijinja::value::Serde(values));
        let texts = [("t.j2", text), ("m.j2", "{% macro m(x) %}<{{ x }}>{% endmacro %}")];
        stack::on(STACK, || Renderer::new(texts)?.render("t.j2", &values)).expect("room for a thread")
    }

    /// Each of these ran away in memory and time, or through the stack: whatever holds a list twice, and whatever reads it
    /// as a whole.
    #[test]
    fn what_would_hold_itself_many_times_over_is_refused() {
        let grows = [
            "{% set x = [x, x] %}",
            "{% set x = (x, x) %}",
            "{% set x = {'a': x, 'b': x} %}",
            "{% set x = dict(a=x, b=x) %}",
            "{% set x = namespace(a=x, b=x) %}",
            "{% set x = [[x, 1], [x, 2]] %}",
            "{% set x = [x if x else 1, x or 1] %}",
            "{% set x = [x[0], x|first] %}",
            "{% set x = [x|default(1), x|list] %}",
            "{% set x = x|zip(x)|list %}",
            "{% set x = [1]|batch(2, x)|list %}",
            "{% set x = [1]|slice(2, x)|list %}",
            "{% set x = x|chain(x) %}",
            "{% set x = x|groupby('0') %}",
            "{% set x = [0, 0]|map('default', x, true) %}",
            "{% set x = [0, 0]|map('d', x, true) %}",
            "{% set x = [0, 0]|map(attribute='a', default=x) %}",
            "{% set x = [0, 0]|map('map', 'default', x, true) %}",
            "{% set x = [0, 0]|map(*['default', 1]) %}",
            "{% set f = namespace %}{% set x = f(a=x, b=x) %}",
            "{% set x = dict(**x) %}",
            "{% with y = [x, x] %}{% set x = y %}{% endwith %}",
            "{% for y in [[x, x]] %}{{ y }}{% endfor %}",
            "{% import 'm.j2' as x %}",
        ];
        let reads =
            ["{{ x ~ '' }}", "{% set s = x|string %}", "{{ x == x }}", "{{ 1 in x }}", "{{ x|json }}", "{{ {x: 1} }}"];
        let begin = "{% set x = [1, 1] %}";
        for (grow, read) in grows.iter().flat_map(|grow| reads.map(|read| (grow, read))) {
            let error = render(&format!("{begin}{}{read}", grow.repeat(40))).expect_err(grow);
            assert_eq!((error.code, error.line), (codes::TEMPLATE_LIMIT, 1), "{grow}: {error:?}");
            assert!(error.range.is_some_and(|range| range.start >= begin.len()), "{grow}");
        }
        let wraps = [
            "{% macro m(x, n) %}{% if n > 0 %}{{ m([x, x], n - 1) }}{% else %}{{ x ~ '' }}{% endif %}{% endmacro %}{{ m(1, 40) }}",
            "{% macro m(x) %}{{ caller([x, x]) }}{% endmacro %}{% call(y) m(1) %}{{ y ~ y }}{% endcall %}",
            "{% set n = namespace(a=1) %}{% for i in range(40) %}{% set n.a = [n.a, n.a] %}{% endfor %}{{ n.a ~ '' }}",
            "{% set n = namespace(a=1) %}{% set n.a = n %}{{ n }}",
            "{% set n = namespace(a=1) %}{% set n.a | default('', n, true) %}{% endset %}{{ n }}",
            "{% set n = namespace() %}{% set n.a, n.b = [site, site.network] %}",
            "{% set node = [1] %}{% set x = [node.name] %}",
            "{% for site in [1] %}{% endfor %}",
            "{% macro m(pool) %}{% endmacro %}",
            "{% from 'm.j2' import m as node %}",
            "{% filter batch(2) %}x{% endfilter %}",
        ];
        for text in wraps {
            assert_eq!(render(text).map_err(|error| error.code), Err(codes::TEMPLATE_LIMIT), "{text}");
        }
    }

    #[test]
    fn texts_and_numbers_are_held() {
        let texts = [
            ("{{ [node.name, node.labels.a, 'x', 1 + 2, site.name ~ '!']|join(',') }}", "n1,b,x,3,s!"),
            ("{% for k in ['a', 'b'] if k in node.labels %}{{ node.labels[k] }}{% endfor %}", "b"),
            (
                "{% set n = namespace(all='', count=0) %}{% for i in range(3) %}{% set n.all = n.all ~ i %}{% set n.count = n.count + 1 %}{% endfor %}{{ n.all }}{{ n.count }}",
                "0123",
            ),
            ("{% set x = {'a': [1, 2], 'b': {'c': (3, 4)}} %}{{ x.b.c[1] }}{{ x.a|first }}", "41"),
            (
                "{% for key, one in site.network|dictsort %}{{ key }}={{ one.vlan }} {{ [key|string, loop.index]|join('-') }};{% endfor %}",
                "x=5 x-1;y=6 y-2;",
            ),
            (
                "{% from 'm.j2' import m %}{{ m([1, 2]) }}{{ ['a', 'b']|map('upper')|join }}{{ [1, 2][0] }}",
                "<[1, 2]>AB1",
            ),
            ("{% set a, b = 1, 'x' %}{{ b }}{% set x %}{{ a }}{% endset %}{{ [x|int, x|length][0] }}", "x1"),
        ];
        for (text, written) in texts {
            assert_eq!(render(text).as_deref(), Ok(written), "{text}");
        }
        let error = render("ok\n{% for x in ['a'] %}{{ [x] }}{% endfor %}\n").expect_err("x may be a list");
        assert_eq!((error.line, error.range), (2, Some(27..28)));
        assert!(error.message.contains("|string"), "{}", error.message);
    }
}
