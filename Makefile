.PHONY: check format readme texts bench

check: ## Everything that must hold before a change goes in: tests, lint, types, README, a clean install
	bash .ci/run

format: ## Put the code into its one form
	ruff format . && ruff check --fix .

readme: ## Write the generated parts of the README anew
	cog -r README.md README.pt-BR.md

texts: ## Bring the Portuguese texts of the lessons up to date; says what has no translation yet
	python tools/catalogue.py

bench: ## Measure against the budgets; figures go to BENCHMARKS.md by hand
	python tools/bench.py
