# payguard: build, install, test.
#
#   make && sudo make install      build against the pg_config in PATH (or PG_CONFIG=...)
#   make installcheck              run the tests against a running server that preloads payguard
#   make test                      build and test with private servers; installs nothing (script/test)
#   make demo                      the same for a guided tour (script/demo)
#
# A build in another folder works too: make -f /path/to/payguard/Makefile

EXTENSION    = payguard
MODULE_big   = payguard
DATA         = payguard--1.0.sql
PGFILEDESC   = "payguard - a payment happens exactly once"
DISTVERSION  = $(shell sed -n 's/^   "version": "\(.*\)",/\1/p' $(top)/META.json)

PG_CONFIG   ?= pg_config
export PG_CONFIG
CURL_CONFIG ?= curl-config

# Known before PGXS is included, unlike $(srcdir): the lists below are expanded while PGXS is read.
top := $(patsubst %/,%,$(dir $(firstword $(MAKEFILE_LIST))))

# The embedded adapter documents are the one generated source. An earlier build in the source tree may have left it there.
GENERATED   = src/gateway/adapters_builtin.c
ADAPTERS    = $(sort $(wildcard $(top)/adapters/*.json))
SOURCES     = $(filter-out $(GENERATED),$(sort $(patsubst $(top)/%,%,$(wildcard $(top)/src/*.c $(top)/src/*/*.c))))
SOURCE_OBJS = $(SOURCES:.c=.o)
OBJS        = $(SOURCE_OBJS) $(GENERATED:.c=.o)
DEPFILES    = $(OBJS:.o=.d)

PG_CPPFLAGS = -I$(srcdir)/src $(shell $(CURL_CONFIG) --cflags)
SHLIB_LINK  = $(shell $(CURL_CONFIG) --libs) -lcrypto

# The tests. They expect a superuser, the preloaded library, and a server of their own (script/test makes one).
REGRESS        = $(sort $(patsubst $(top)/sql/%.sql,%,$(wildcard $(top)/sql/*.sql)))
ISOLATION      = $(sort $(patsubst $(top)/specs/%.spec,%,$(wildcard $(top)/specs/*.spec)))
REGRESS_OPTS   = --load-extension=payguard
ISOLATION_OPTS = --load-extension=payguard
ifneq (,$(wildcard $(top)/t/*.pl))
TAP_TESTS      = 1
endif
ENCODING       = UTF8
NO_LOCALE      = 1

EXTRA_CLEAN = $(GENERATED) $(DEPFILES)

# No bitcode: payguard's functions are never inlined into queries, and Debian's would need clang to build.
override with_llvm = no

# `make test` and `make demo` must start on a machine that has no PostgreSQL yet, so PGXS may be missing here.
PGXS := $(wildcard $(shell $(PG_CONFIG) --pgxs 2>/dev/null))

ifeq (,$(PGXS))
all install installcheck clean:
	@echo "The PostgreSQL server's development files were not found: run script/bootstrap, or set PG_CONFIG." >&2; exit 1
else
include $(PGXS)

# Objects belong to the folder they were built in. With VPATH set, make would take those of a build in the source tree
# for ours, so the only thing it may look up there is what PGXS needs looked up.
srcdir := $(srcdir)
override VPATH :=
vpath %.control $(srcdir)

COMPILE = $(CC) $(CFLAGS) $(CPPFLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<

$(SOURCE_OBJS): %.o: $(top)/%.c $(MAKEFILE_LIST)
	@mkdir -p $(@D)
	$(COMPILE)

$(GENERATED:.c=.o): $(GENERATED)
	$(COMPILE)

# The folder is a prerequisite so that a document that goes away is noticed as well.
$(GENERATED): $(ADAPTERS) $(wildcard $(top)/adapters) $(top)/script/embed-adapters
	@mkdir -p $(@D)
	perl $(top)/script/embed-adapters $(ADAPTERS) > $@.new
	mv $@.new $@

# PGXS tracks no headers here; the compiler's own lists do.
-include $(DEPFILES)

# From 16 on PGXS hides every symbol that is not PGDLLEXPORT. In 15 that macro is empty and PG_FUNCTION_INFO_V1 marks
# nothing, so the linker does the hiding. Mind that a background worker's entry point needs PGDLLEXPORT all the same.
ifeq (15,$(MAJORVERSION))
SHLIB_LINK += -Wl,--version-script=$(top)/src/exports.map
payguard$(DLSUFFIX): $(top)/src/exports.map
endif

# The tests' own Perl modules.
PROVE_FLAGS += -I $(abspath $(top))/t/perl

distclean:
	rm -rf $(top)/build
endif

.PHONY: all install installcheck clean bootstrap test demo indent indent-check checkver dist

bootstrap:
	@$(top)/script/bootstrap

test:
	@$(top)/script/test

demo: bootstrap
	@$(top)/script/demo

indent:
	@$(top)/script/indent

indent-check:
	@$(top)/script/indent --check

checkver:
	@$(top)/script/checkver

# What PGXN takes: a zip of the committed tree under NAME-VERSION/.
dist: checkver
	git -C $(top) archive --format=zip --prefix=payguard-$(DISTVERSION)/ \
		--output=$(CURDIR)/payguard-$(DISTVERSION).zip HEAD
	@echo payguard-$(DISTVERSION).zip

# Random faults, crashes and rivals, judged by the test gateway's books: make chaos MINUTES=10 [SEED=7]
.PHONY: chaos
chaos:
	@MINUTES="$(MINUTES)" SEED="$(SEED)" $(top)/script/chaos
