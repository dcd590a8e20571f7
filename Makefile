# What can be done here. Everything is in tests/run; `make help` lists it.

.PHONY: help test test-full test-unit test-host test-cluster demo demo-cluster bench packages image generate setup clean-testbed clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

demo: ## Show nodelet at work on a throwaway node (no cluster; 3 minutes, 12 the first time)
	@tests/run demo

demo-cluster: ## Show nodes of a cluster upgraded under constant requests, and a broken release (3 minutes, 20 the first time)
	@tests/run demo-cluster

test: ## Run everything: checks, unit tests, real-node tests, cluster tests
	@tests/run unit host cluster

test-full: ## The same, and the cluster tests once more with the oldest Kubernetes (1.33)
	@tests/run unit host cluster oldest

test-unit: ## Formatting, lints, generated files, unit tests
	@tests/run unit

test-host: ## Tests on real systemd nodes
	@tests/run host

test-cluster: ## Tests with a real control plane and real kubelets
	@tests/run cluster

bench: ## Measure nodelet beside bare commands, Puppet, CFEngine and Ansible (15 minutes; no test)
	@tests/run bench

packages: ## Build .deb and .rpm of nodelet and kubectl-nodes and signed repositories of them, into build/
	@tests/run packages

image: ## Build node-controller's container image into build/node-controller.tar, without a registry
	@tests/run image

generate: ## Write the files that come from the types: settings, manual, completions, reference
	@tests/run generate

setup: ## Install what the other commands need (they do it themselves, too)
	@tests/run setup

clean-testbed: ## Remove what crashed runs left on this machine
	@tests/run clean

clean: ## Remove what was built in this checkout (the cache stays)
	rm -rf build
