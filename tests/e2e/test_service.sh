#!/usr/bin/env bash
# The daemon under a service manager, which this script plays: the daemon's messages (ready, reloading, stopping, and
# that the owner thread lives), and listening sockets that the manager passes by name and that outlive the daemon.
source "$(dirname "$0")/with_ternd.sh"
needs python3 "to play the service manager"

cat >"$DIR/config.yaml" <<YAML
node: e2e
workers: 1
huge_pages: false
deadlines: {drain_ms: 1000}
admin: {socket: $DIR/admin.sock}
tenants:
  - {name: chat, socket: $DIR/chat.sock, memory: 16M}
  - {name: code, socket: $DIR/code.sock, memory: 16M}
YAML

cat >"$DIR/manager.py" <<'PYTHON'
import atexit, os, re, signal, socket, subprocess, sys, time

ternd, ctl, folder = sys.argv[1:]
LIMIT_S = 120


def path(name):
    return f"{folder}/{name}.sock"


def listening(name):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.bind(path(name))
    s.listen(16)
    return s


class Manager:
    def __init__(self):
        self.notes = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notes.bind(f"{folder}/notify")
        self.pid = 0

    def start(self, named, pid=None, **env):
        """named: (name, socket) each, or a file that is no socket."""
        self.notes.setblocking(False)
        try:
            while self.notes.recv(4096):  # of the previous daemon
                pass
        except BlockingIOError:
            pass
        count, names = len(named), ":".join(n for n, _ in named)
        fds = [os.dup(s.fileno()) for _, s in named]
        high = [os.dup2(fd, 100 + i) for i, fd in enumerate(fds)]  # above 3, 4 ...
        self.log = open(f"{folder}/log", "w+")

        self.pid = os.fork()
        if self.pid == 0:
            os.dup2(self.log.fileno(), 2)
            for i, fd in enumerate(high):
                os.dup2(fd, 3 + i)
            os.closerange(3 + count, 200)
            if named:
                env |= {"LISTEN_PID": str(pid or os.getpid()), "LISTEN_FDS": str(count), "LISTEN_FDNAMES": names}
            env |= {"NOTIFY_SOCKET": f"{folder}/notify", "WATCHDOG_PID": str(os.getpid())}
            os.execve(ternd, [ternd, "--config", f"{folder}/config.yaml"], os.environ | env)
        for fd in fds + high:
            os.close(fd)

    def hears(self, pattern):
        until = time.monotonic() + LIMIT_S
        self.notes.settimeout(1)
        while time.monotonic() < until:
            try:
                text = self.notes.recv(4096).decode()
            except TimeoutError:
                done = os.waitpid(self.pid, os.WNOHANG)
                if done[0]:
                    self.pid = 0
                    self.log.seek(0)
                    sys.exit(f"the daemon ended with {os.waitstatus_to_exitcode(done[1])}, not {pattern}: {self.log.read()}")
                continue
            if re.fullmatch(pattern, text):
                return
            if text != "WATCHDOG=1":
                sys.exit(f"the manager heard {text}, not {pattern}")
        self.log.seek(0)
        sys.exit(f"the manager did not hear {pattern}: {self.log.read()}")

    def ended(self):
        until = time.monotonic() + LIMIT_S
        while not (done := os.waitpid(self.pid, os.WNOHANG))[0] and time.monotonic() < until:
            time.sleep(0.02)
        if not done[0]:
            sys.exit("the daemon did not end")
        status = os.waitstatus_to_exitcode(done[1])
        self.pid = 0
        self.log.seek(0)
        return status, self.log.read()


def ping(name="admin"):
    return subprocess.run([ctl, "--socket", path(name), "ping", "--count", "1"], capture_output=True, text=True, timeout=LIMIT_S)


m = Manager()
atexit.register(lambda: m.pid and os.kill(m.pid, signal.SIGKILL))  # if this script fails
made = {n: listening(n) for n in ("admin", "chat", "code")}
named = [("admin", made["admin"]), ("tenant-chat", made["chat"]), ("tenant-code", made["code"])]

# all messages arrive in order; the sockets are those that were passed
m.start(named, WATCHDOG_USEC="400000")
m.hears("READY=1")
m.hears("STATUS=serving 2 tenants, 0 peers")
for _ in range(3):
    m.hears("WATCHDOG=1")
assert ping().returncode == 0, ping().stderr
os.kill(m.pid, signal.SIGHUP)
m.hears(r"RELOADING=1\nMONOTONIC_USEC=\d+")
m.hears("READY=1")
m.hears("STATUS=serving 2 tenants, 0 peers")
whole = open(f"{folder}/config.yaml").read()
open(f"{folder}/config.yaml", "a").write("zork: 1\n")
os.kill(m.pid, signal.SIGHUP)
m.hears(r"RELOADING=1\nMONOTONIC_USEC=\d+")
m.hears("READY=1")
m.hears("STATUS=serving 2 tenants, 0 peers; the last reload failed: .*zork.*")
open(f"{folder}/config.yaml", "w").write(whole)
os.kill(m.pid, signal.SIGTERM)
m.hears("STOPPING=1")
m.hears("STATUS=draining for at most 1 s")
status, log = m.ended()
assert status == 0, log
assert len(re.findall("event=socket_taken", log)) == 3, log

# the sockets outlive the daemon: a client that connects meanwhile is answered by the next daemon
assert all(os.path.exists(path(n)) for n in made)
early = subprocess.Popen([ctl, "--socket", path("admin"), "ping", "--count", "1"], stdout=subprocess.DEVNULL)
made["code"].close()
m.start(named[:2])  # code's is not handed over, and its stale file is replaced
m.hears("READY=1")
assert early.wait(LIMIT_S) == 0
m.hears("STATUS=serving .*")
drained = subprocess.run([ctl, "--socket", path("admin"), "drain"], capture_output=True, text=True)
assert (drained.returncode, drained.stdout) == (0, "draining: no session is open, the daemon exits\n"), drained
m.hears("STATUS=draining .*")  # an operator may cancel the drain, and a manager would not
m.hears("STOPPING=1")
assert m.ended()[0] == 0
assert not os.path.exists(path("code")), "ternd made that one itself"

# a socket that does not fit is refused with a message
elsewhere = listening("elsewhere")
plain = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
for wrong, text in [
    ([("chat", made["chat"])], "no socket is called chat"),
    ([("tenant-chat", made["chat"]), ("tenant-chat", made["chat"])], "no socket is called tenant-chat"),
    ([("tenant-chat", elsewhere)], "the socket called tenant-chat does not listen at"),
    ([("tenant-chat", plain)], "the socket called tenant-chat does not listen at"),
    ([("tenant-chat", open("/dev/null"))], "the socket called tenant-chat does not listen at"),
    ([("", made["chat"])], "no socket is called"),
    ([("x" * 200, made["chat"])], "longer than admin or any"),
]:
    m.start(named[:1] + wrong)
    status, log = m.ended()
    assert status == 1 and text in log, (wrong, status, log)

# sockets passed to another process are ignored
made["admin"].close()
made["chat"].close()
m.start([("tenant-wrong", elsewhere)], pid=1)
m.hears("READY=1")
os.kill(m.pid, signal.SIGKILL)
m.ended()
print("service: ok")
PYTHON
python3 "$DIR/manager.py" "$TERN_BIN/ternd" "$CTL" "$DIR"
