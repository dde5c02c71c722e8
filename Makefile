# fairq: a fair multi-tenant task queue inside PostgreSQL
#
#   make, make install      as for every extension
#   make installcheck       tests what is installed, on a running server
#   make test       the tests that a change must pass, in temporary clusters
# make test-all   the rest: suites that need other software (monitoring, a browser,
# the clients' frameworks), and full runs of shortened ones
#   make demo       the demo on real input (KEEP=1 keeps its cluster)
#   make bench      the benchmarks, in minutes; make bench-full: in half an hour
#   make bench-plots    redraws the plots of docs/performance.md from its results
#   make dist       the release as a zip of the committed files
#   make deb        Debian packages, in fairq-deb
#   make packages   the clients' packages, in fairq-packages
#   make docs       the pages as a site with search, in fairq-docs
#
# PG_CONFIG=... chooses the PostgreSQL, WERROR=1 makes warnings errors.

# These targets run in a copy of the tree.  They prepare the machine first, so
# they need no PostgreSQL beforehand.
.PHONY: prepare test test-all demo bench bench-full bench-plots dist deb packages docs
prepare:
	@test/prepare
test:
	@test/run
test-all:
	@test/run --all
demo: prepare
	@test/cluster $(if $(KEEP),--keep) --fetch fairq-demo.svg demo/run
bench: prepare
	@test/bench/run
bench-full: prepare
	@test/bench/run --full
bench-plots:
	@test/bench/report --plots test/bench/plots

# META.json alone says which release this is.
release := $(shell sed -n 's/^   "version": "\(.*\)",$$/\1/p' META.json)
dist:
	@git rev-parse --verify -q HEAD >/dev/null || { echo "make dist: this is not a clone of the repository" >&2; exit 1; }
	git archive --format=zip --prefix=fairq-$(release)/ -o fairq-$(release).zip HEAD
deb:
	@test/prepare deb
	@deploy/deb
packages:
	@deploy/packages
docs:
	@docs/site

# The rest is PostgreSQL's way of building extensions.
.DEFAULT_GOAL := all
ifneq ($(filter-out prepare test test-all demo bench bench-full bench-plots dist deb packages docs,$(or $(MAKECMDGOALS),all)),)

EXTENSION = fairq
DATA = fairq--1.0.sql
MODULE_big = fairq
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/*/*.c)))

REGRESS = $(sort $(basename $(notdir $(wildcard sql/*.sql))))
REGRESS_OPTS = --encoding=UTF8 --no-locale --load-extension=fairq
# helpers goes first, also before a single spec, because it creates the
# procedures with which other specs print their results.
ISOLATION = $(sort $(basename $(notdir $(wildcard test/specs/*.spec))))
ifneq ($(strip $(ISOLATION)),)
override ISOLATION := helpers $(filter-out helpers,$(ISOLATION))
endif
ISOLATION_OPTS = --inputdir=test --encoding=UTF8 --no-locale
PROVE_TESTS = $(sort $(wildcard test/t/*.pl))

# The TAP tests start servers of their own.  Where they cannot start one,
# installcheck leaves them out, unless TAP_TESTS=1 requests them.
ifeq ($(origin TAP_TESTS),undefined)
TAP_TESTS = 1
ifneq ($(filter installcheck,$(MAKECMDGOALS)),)
ifeq ($(shell id -u),0)
$(warning TAP tests are left out: root cannot start the servers that they need)
undefine TAP_TESTS
else ifneq ($(shell perl -MIPC::Run -MTest::More -e 'print "found"' 2>/dev/null),found)
$(warning TAP tests are left out: please install the Perl module IPC::Run, on Debian libipc-run-perl)
undefine TAP_TESTS
endif
endif
endif

# PostgreSQL's own headers and idioms are not clean under -Wextra.
PG_CFLAGS = -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare \
	-Wno-missing-field-initializers -Wno-clobbered
# the library has the version of its SQL script
PG_CPPFLAGS = $(addprefix -I,$(sort $(dir $(wildcard src/*/*.h)))) -DFAIRQ_VERSION='$(shell sed -n "s/^default_version = '\(.*\)'/\"\1\"/p" fairq.control)'
ifeq ($(WERROR),1)
PG_CFLAGS += -Werror
endif

EXTRA_CLEAN = fairq-demo.svg fairq-*.zip

PG_CONFIG = pg_config
pg_version := $(shell $(PG_CONFIG) --version)
ifeq ($(pg_version),)
$(error "$(PG_CONFIG)" does not run: install PostgreSQL's server headers, or set PG_CONFIG)
endif
pg_major := $(shell echo '$(pg_version)' | sed 's/^[^0-9]*\([0-9]*\).*/\1/')
ifneq ($(filter 7 8 9 10 11 12 13 14,$(pg_major)),)
$(error fairq needs PostgreSQL 15 or later, but this is $(pg_version))
endif

# A user's server may have any configuration.  The sessions of the tests set what they
# depend on to PostgreSQL's defaults, in addition to pg_regress's settings.
installcheck: override export PGOPTIONS += \
	-c search_path=public \
	-c client_min_messages=notice \
	-c default_transaction_isolation=read\ committed \
	-c default_transaction_read_only=off \
	-c statement_timeout=0 \
	-c lock_timeout=0 \
	-c idle_in_transaction_session_timeout=0 \
	-c max_parallel_workers_per_gather=2 \
	-c quote_all_identifiers=off \
	$(if $(filter-out 15 16,$(pg_major)),-c transaction_timeout=0)

PGXS := $(shell $(PG_CONFIG) --pgxs)

# A PostgreSQL built with LLVM requests bitcode, whose compiler or linker is
# often missing.  fairq works without bitcode.
of_server = $(shell sed -n 's/^$(1)[[:blank:]]*=[[:blank:]]*//p' '$(dir $(PGXS))../Makefile.global')
clang := $(call of_server,CLANG)
llvm_lto := $(call of_server,LLVM_BINPATH)/llvm-lto
ifeq ($(and $(shell command -v $(clang)),$(shell command -v $(llvm_lto))),)
override with_llvm := no
endif

include $(PGXS)

$(OBJS): $(wildcard src/*/*.h)

endif
