# What people type. `make demo` shows the whole thing; `make test` is what a change must pass.
.PHONY: help setup build demo test bench lint fmt docs deny snapshots clean-demo

help: ## Say what there is
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

setup: ## Install what this machine lacks (PostgreSQL, git, a C compiler)
	@scripts/setup.sh

build: ## Build better-compute and bcd into target/debug
	cargo build --workspace --bins --locked

demo: setup build ## Watch a commit become three converged machines
	@scripts/demo.sh

test: setup ## Format, lints, rules, unit, store, end-to-end, docs
	@scripts/test.sh

bench: ## Measure, release build: the product beside the limit of this machine (BENCH="b8 --nodes 1000,5000")
	ulimit -n $$(ulimit -Hn) && cargo run --release --locked -p benches -- $(BENCH)

lint: ## Format and lints only
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

fmt: ## Format everything
	cargo fmt --all

docs: ## Build the API documentation of every room
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

deny: ## Licences, bans and advisories, when cargo-deny is installed
	cargo deny check

snapshots: ## Accept what help, tables and messages look like
	INSTA_UPDATE=always cargo test -p cli --lib --locked

clean-demo: ## Stop a demo that was left behind, and remove its files
	@scripts/demo.sh --clean
