# Private builds and clusters for script/test and script/demo; sourced, by bash.
#
# Nothing here touches the system's PostgreSQL or its clusters: the extension is installed into a staging folder, and
# servers run from folders of their own, reached by a Unix socket. Everything lives in one temporary folder, so two
# checkouts, or one checkout twice, can be at work at the same time. Compiled objects alone are kept between runs, in
# the checkout's build/ if that can be written.
#
# What is started here is ended here, by process id, however the script ends.
#
# Call work_begin first. Functions that may run as root do the server's part as SERVER_USER, since a server refuses root.

# shellcheck shell=bash

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PG_CONFIG=${PG_CONFIG:-pg_config}
SERVER_USER=${SERVER_USER:-postgres}
TOOL_CFLAGS=${TOOL_CFLAGS:--O2 -g}

WORK=          # the temporary folder
STAGE=         # where the extension is installed to, DESTDIR
BUILD=         # where it is built
TREE=          # a copy of the checkout that SERVER_USER can read
RUNNING=       # process group of the long command at work, see run_limited
PROGRAMS=      # process ids of what start_program started

# A make that called the script would hand its own job server and flags down to unrelated makes.
unset MAKEFLAGS MFLAGS MAKELEVEL

fail() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

# ---- beginning and end

# Makes the temporary folder and sees to it that it goes again, with all that runs in it.
work_begin() {
    PG_BIN=$("$PG_CONFIG" --bindir)
    PG_SHARE=$("$PG_CONFIG" --sharedir)
    PG_LIB=$("$PG_CONFIG" --pkglibdir)
    WORK=$(mktemp -d "${TMPDIR:-/tmp}/payguard.XXXXXX")
    # A socket's path must fit into about 100 bytes.
    if [ ${#WORK} -gt 60 ]; then
        rmdir "$WORK"
        WORK=$(mktemp -d /tmp/payguard.XXXXXX)
    fi
    trap work_end EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    STAGE=$WORK/stage
    TREE=$WORK/tree
    mkdir "$WORK/socket" "$WORK/log" "$STAGE"
    hand_over "$WORK"
}

work_end() {
    local status=$?

    trap - EXIT
    trap '' HUP INT TERM
    stop_running
    stop_programs
    stop_servers
    if [ -n "${KEEP-}" ]; then
        echo "kept: $WORK"
    else
        rm -rf "$WORK"
    fi
    exit "$status"
}

is_root() {
    [ "$(id -u)" -eq 0 ]
}

# Gives files to the user that the servers run as.
hand_over() {
    if is_root; then
        chown -R "$SERVER_USER:" "$@"
    fi
}

# The environment of everything that runs against a private server: nothing of the caller's libpq settings, and a working
# folder that the servers' user may enter.
server_env() {
    env --chdir="$WORK" -u PGDATABASE -u PGHOSTADDR -u PGSERVICE -u PGOPTIONS -u PGPASSWORD -u PGPORT -u LC_ALL \
        HOME="$WORK" LANG=C.UTF-8 PATH="$PG_BIN:$PATH" PGHOST="$WORK/socket" PGUSER=postgres "$@"
}

# Runs a command as the servers' user. setpriv becomes the command, so its process id is the command's.
as_server() {
    if is_root; then
        server_env setpriv --reuid "$SERVER_USER" --regid "$SERVER_USER" --init-groups "$@"
    else
        server_env "$@"
    fi
}

# ---- long commands

# run_limited SECONDS LOG COMMAND...: runs a command as the servers' user in a process group of its own, its output in LOG
# and on the screen too unless QUIET is set. Returns its exit code; 124 if it had to be ended for taking too long.
run_limited() {
    local limit=$1 log=$2 status=0 watcher=
    shift 2

    : >"$log"
    # In the background and waited for, because bash runs a trap only between foreground commands.
    in_own_group "$limit" "$@" >>"$log" 2>&1 </dev/null &
    RUNNING=$!
    # Following the file, where a pipe would be held open by whatever the command leaves behind.
    if [ -z "${QUIET-}" ]; then
        tail -n +1 -s 0.2 -f --pid="$RUNNING" "$log" &
        watcher=$!
    fi
    wait "$RUNNING" || status=$?
    stop_running
    [ -z "$watcher" ] || wait "$watcher" || :
    return "$status"
}

# exec all the way down: the background process is the group's leader.
in_own_group() {
    local limit=$1
    shift

    if is_root; then
        set -- setpriv --reuid "$SERVER_USER" --regid "$SERVER_USER" --init-groups "$@"
    fi
    export HOME="$WORK" LANG=C.UTF-8 PATH="$PG_BIN:$PATH" PGHOST="$WORK/socket" PGUSER=postgres
    unset PGDATABASE PGHOSTADDR PGSERVICE PGOPTIONS PGPASSWORD PGPORT LC_ALL
    cd "$WORK"
    exec setsid timeout --kill-after=20 "$limit" "$@"
}

# Ends what a command of run_limited left running, and waits until it is gone.
stop_running() {
    local signal

    [ -n "$RUNNING" ] || return 0
    for signal in TERM KILL; do
        # The second is for a command that has not come as far as making its group.
        kill -s "$signal" -- "-$RUNNING" 2>/dev/null || kill -s "$signal" "$RUNNING" 2>/dev/null || break
        wait_until 50 group_is_gone "$RUNNING" && break
    done
    RUNNING=
}

group_is_gone() {
    ! kill -0 -- "-$1" 2>/dev/null
}

# start_program NAME COMMAND...: starts a program that understands --port and --port-file (the test gateway, the receiver
# of callbacks), as the servers' user, and leaves it running. Its port is in WORK/NAME.port, its output in WORK/log/NAME.
start_program() {
    local name=$1 pid
    shift

    # exec, so that the process id is the program's.
    (
        exec >"$WORK/log/$name" 2>&1 </dev/null
        in_own_group 86400 "$@" --port 0 --port-file "$WORK/$name.port"
    ) &
    pid=$!
    PROGRAMS="$PROGRAMS $pid"
    wait_until 100 has_port_or_ended "$name" "$pid" && [ -s "$WORK/$name.port" ] || {
        cat "$WORK/log/$name" >&2
        fail "$name did not start"
    }
}

has_port_or_ended() {
    [ -s "$WORK/$1.port" ] || ! kill -0 "$2" 2>/dev/null
}

stop_programs() {
    for RUNNING in $PROGRAMS; do
        stop_running
    done
    PROGRAMS=
}

# wait_until N COMMAND...: tries up to N times, 0.1 s apart.
wait_until() {
    local tries=$1
    shift

    while ! "$@"; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || return 1
        sleep 0.1
    done
}

# ---- building

# Chooses BUILD: a folder for this compiler, server and set of flags in the checkout, else a temporary one.
choose_build_folder() {
    local key

    key=$(printf '%s\n' "$ROOT" "$("$PG_CONFIG" --version)" "$PG_LIB" "${CC-}" "${CFLAGS-}" "${COPT-}" "${PROFILE-}" | cksum)
    BUILD=$ROOT/build/${key%% *}
    if ! mkdir -p "$BUILD" 2>/dev/null || ! [ -w "$BUILD" ]; then
        BUILD=$WORK/build
        mkdir -p "$BUILD"
    fi
}

# Two runs of one checkout may share the folder, so they take turns while they build and copy out of it.
with_build_lock() {
    (
        flock 9
        "$@"
    ) 9>"$BUILD/.lock"
}

# logged NAME COMMAND...: keeps a step quiet unless it fails.
logged() {
    local log=$WORK/log/$1
    shift

    "$@" >"$log" 2>&1 || {
        cat "$log" >&2
        return 1
    }
}

# Builds the extension and installs it into STAGE.
build_extension() {
    with_build_lock build_extension_locked
}

build_extension_locked() {
    # make links again for a source that is new, but not for one that is gone.
    (cd "$ROOT/src" && find . -name '*.c' | sort) >"$BUILD/sources.new"
    cmp -s "$BUILD/sources.new" "$BUILD/sources" || rm -f "$BUILD"/payguard.*
    mv "$BUILD/sources.new" "$BUILD/sources"
    logged build make -C "$BUILD" -f "$ROOT/Makefile" -j "$(nproc)" PG_CONFIG="$PG_CONFIG" install DESTDIR="$STAGE"
}

# build_tool NAME PROGRAM: builds tools/NAME and puts PROGRAM into WORK/bin.
build_tool() {
    mkdir -p "$WORK/bin"
    with_build_lock build_tool_locked "$@"
}

build_tool_locked() {
    logged "$1" make -C "$ROOT/tools/$1" -j "$(nproc)" BUILD="$BUILD/tools" CFLAGS="$TOOL_CFLAGS"
    cp "$BUILD/tools/$2" "$WORK/bin/$2"
    hand_over "$WORK/bin"
}

# Copies the checkout to TREE: the servers' user may not be able to read it, and an edit during a run must not matter.
copy_tree() {
    mkdir "$TREE"
    tar -C "$ROOT" --exclude=./.git --exclude=./build --exclude='*.o' --exclude='*.so' -cf - . | tar -C "$TREE" -xof -
    hand_over "$TREE"
}

# ---- servers

# Settings that make a server find the staged extension. Debian's servers have extension_destdir for that; from 18 on
# there is extension_control_path. $1 is any data folder, to ask the server in.
stage_settings() {
    if as_server "$PG_BIN/postgres" -D "$1" -C extension_destdir >/dev/null 2>&1; then
        echo "extension_destdir = '$STAGE'"
    elif as_server "$PG_BIN/postgres" -D "$1" -C extension_control_path >/dev/null 2>&1; then
        echo "extension_control_path = '$STAGE$PG_SHARE:\$system'"
    else
        fail "this server can use an extension only where it is installed (neither Debian's extension_destdir nor 18's extension_control_path)"
    fi
    echo "dynamic_library_path = '$STAGE$PG_LIB:\$libdir'"
}

# cluster_create NAME [SETTING...]: initializes a cluster that preloads payguard, in WORK/NAME. Its superuser is
# postgres, whoever runs it. Each SETTING is a line for postgresql.conf.
cluster_create() {
    local data=$WORK/$1
    shift

    as_server "$PG_BIN/initdb" --pgdata="$data" --username=postgres --auth=trust --encoding=UTF8 --no-locale --no-sync \
        >"$WORK/log/initdb" 2>&1 || {
        cat "$WORK/log/initdb" >&2
        return 1
    }
    {
        stage_settings "$data"
        cat <<CONF
shared_preload_libraries = 'payguard'
listen_addresses = ''
unix_socket_directories = '$WORK/socket'
fsync = off
max_prepared_transactions = 16
log_line_prefix = '%m [%p] %q%a '
CONF
        [ $# -eq 0 ] || printf '%s\n' "$@"
    } >"$WORK/conf.new"
    cat "$WORK/conf.new" >>"$data/postgresql.conf"
}

# cluster_start NAME [PORT]: the port only names the socket unless a SETTING opened TCP.
cluster_start() {
    as_server "$PG_BIN/pg_ctl" start --wait --silent --pgdata="$WORK/$1" --log="$WORK/log/$1.log" \
        --options="-p ${2:-5432}" || {
        cat "$WORK/log/$1.log" >&2
        return 1
    }
}

cluster_stop() {
    as_server "$PG_BIN/pg_ctl" stop --wait --silent --mode=fast --pgdata="$WORK/$1"
}

# A TCP port on the loopback interface that nobody listens on at this moment.
free_port() {
    perl -MIO::Socket::INET -e \
        'print IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1", LocalPort => 0)->sockport, "\n"'
}

# Ends every server whose data folder is inside WORK, those that tests started included.
stop_servers() {
    local file pid

    while read -r file; do
        pid=$(sed 1q "$file" 2>/dev/null) || continue
        is_our_server "$pid" || continue
        kill -QUIT "$pid" 2>/dev/null || continue
        wait_until 100 server_is_gone "$pid" || kill -KILL "$pid" 2>/dev/null || :
    done < <(find "$WORK" -name postmaster.pid 2>/dev/null)
}

# A file may be older than its process, so what counts is where the process with that id is at work.
is_our_server() {
    case $(readlink "/proc/${1:-0}/cwd" 2>/dev/null) in
        "$WORK"/*) return 0 ;;
    esac
    return 1
}

server_is_gone() {
    ! is_our_server "$1"
}
