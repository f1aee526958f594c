#!/usr/bin/env bash
# P7: clients send descriptors: TCP sockets that linger at their last close for longer than this test lasts. With a
# kernel that refuses them and with one that cannot (interpose_fds.c) nobody else waits, no descriptor stays, the limits
# are restored, and the daemon ends in time. No libtern: such a client speaks the wire by itself.
source "$(dirname "$0")/with_ternd.sh"
needs python3 "to speak the wire"
"$CC" -std=gnu17 -O1 -shared -fPIC -o "$DIR/fds.so" "$HERE/interpose_fds.c" -ldl

cat >"$DIR/config.yaml" <<YAML
node: e2e
workers: 1
data_threads: 1
huge_pages: false
deadlines: {drain_ms: 1000, progress_ms: 1000}
admin: {socket: $DIR/admin.sock}
tenants:
  - {name: a, socket: $DIR/a.sock, memory: 16M, conns_max: 4}
  - {name: b, socket: $DIR/b.sock, memory: 16M}
YAML

cat >"$DIR/attack.py" <<'PYTHON'
import array, atexit, json, os, resource, signal, socket, struct, subprocess, sys, threading, time

ternd, ctl, folder, preload, given = sys.argv[1:]
LINGER_S = 120  # longer than every wait in this test
SOON_S = 20     # a part of that, and far more than an answer takes
LIMIT_S = 60
HELLO, PING = 1, 25
RIGHTS, OOB = 253, socket.MSG_OOB
resource.setrlimit(resource.RLIMIT_NOFILE, (min(8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)


def frame(kind, number, body=b"\xa0\x06\x00"):
    return struct.pack("<IHHQQ", len(body), 1, kind, number, 0) + body


def hello():
    return frame(HELLO, 1, b"\x08\x01\x10\xe8\x07\x1a\x01x")


def answer(s):
    head = b""
    while len(head) < 24:
        more = s.recv(24 - len(head))
        if not more:
            raise EOFError
        head += more
    left = struct.unpack_from("<I", head)[0]
    while left > 0:
        left -= len(s.recv(left))
    return struct.unpack("<IHHQQ", head)[3]


def connect(name, greet=True):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(LIMIT_S)
    s.connect(f"{folder}/{name}.sock")
    if greet:
        s.sendall(hello())
        assert answer(s) == 1, "refused"
    return s


# ---- lingering sockets ----

far = socket.socket()
far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
far.bind(("127.0.0.1", 0))
far.listen(512)
others = []  # ends that nobody reads


def lingering(n):
    made = []
    for _ in range(n):
        t = socket.socket()
        t.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        t.connect(far.getsockname())
        others.append(far.accept()[0])
        t.setblocking(False)
        try:
            while True:
                t.send(b"x" * 4096)
        except BlockingIOError:
            pass
        t.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER_S))
        made.append(t)
    return made


refused = 0  # refused by the kernel, so closed here: their wait is removed


def send(s, data, n=1, flags=0):
    """With n descriptors, whose last reference is in the daemon's queue before the daemon can look."""
    global refused
    made = lingering(n)
    sent = False
    if d:
        d.stop()
    try:
        s.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [t.fileno() for t in made]))], flags)
        sent = True
    except PermissionError:
        refused += 1
    except OSError:  # the daemon has closed the connection meanwhile
        pass
    for t in made:
        if not sent:
            t.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        t.close()
    if d:
        os.kill(d.pid, signal.SIGCONT)


# ---- the daemon, and tenant b, which must be served all the time ----

class Daemon:
    def __init__(self, listeners=()):
        env = dict(os.environ)
        if preload:
            env["LD_PRELOAD"] = preload
        self.log = open(f"{folder}/log", "w+")
        self.pid = os.fork()
        if self.pid == 0:
            high = [os.dup2(s.fileno(), 4000 + i) for i, (_, s) in enumerate(listeners)]
            os.dup2(self.log.fileno(), 2)
            for i, fd in enumerate(high):
                os.dup2(fd, 3 + i)
            os.closerange(3 + len(high), 8192)
            if listeners:
                env |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(high)),
                        "LISTEN_FDNAMES": ":".join(n for n, _ in listeners)}
            os.execve(ternd, [ternd, "--config", f"{folder}/config.yaml"], env)
        until = time.monotonic() + LIMIT_S
        while "event=ready" not in self.text():
            assert time.monotonic() < until and os.waitpid(self.pid, os.WNOHANG)[0] == 0, self.text()
            time.sleep(0.02)

    def text(self):
        return open(f"{folder}/log").read()

    def status(self):
        run = subprocess.run([ctl, "--socket", f"{folder}/admin.sock", "status", "--json"], capture_output=True,
                             text=True, timeout=LIMIT_S)
        return json.loads(run.stdout)

    def stop(self):
        """It stands still when this returns."""
        os.kill(self.pid, signal.SIGSTOP)
        while open(f"/proc/{self.pid}/stat").read().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.0002)

    def fds(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def end(self):
        began = time.monotonic()
        os.kill(self.pid, signal.SIGTERM)
        while not (done := os.waitpid(self.pid, os.WNOHANG))[0]:
            assert time.monotonic() - began < SOON_S, "the daemon does not end"
            time.sleep(0.02)
        self.pid = 0
        assert os.waitstatus_to_exitcode(done[1]) == 0, self.text()


class Neighbour(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.s, self.stop, self.asked, self.worst = connect("b"), False, 1, 0.0
        self.start()

    def run(self):
        while not self.stop:
            self.asked += 1
            began = time.monotonic()
            self.s.sendall(frame(PING, self.asked))
            answer(self.s)
            self.worst = max(self.worst, time.monotonic() - began)
            time.sleep(0.01)

    def end(self):
        self.stop = True
        self.join(SOON_S)
        assert not self.is_alive() and self.worst < SOON_S, f"the neighbour waited {self.worst:.1f} s"
        self.s.close()


# ---- attacks; each returns what it leaves open ----

def beside_hello(name):
    s = connect(name, greet=False)
    send(s, hello())
    return [s]


def beside_three_bytes(name):
    s = connect(name, greet=False)
    send(s, b"\x10\0\0")
    return [s]


def beside_a_request(name):
    s = connect(name)
    s.sendall(frame(PING, 2))
    send(s, frame(PING, 3))
    try:
        s.sendall(frame(PING, 4))
    except OSError:
        pass
    return [s]


def as_many_as_fit(name):
    s = connect(name, greet=False)
    send(s, hello(), RIGHTS)
    return [s]


def out_of_band(name):
    s = connect(name)
    send(s, b"!", flags=OOB)
    return [s]


def out_of_band_replaced(name):
    s = connect(name)
    for _ in range(3):
        send(s, b"!", flags=OOB)
    return [s]


def out_of_band_at_the_door(name):
    s = connect(name, greet=False)
    send(s, hello()[:1], flags=OOB)
    send(s, hello()[:2], flags=OOB)
    try:
        s.sendall(hello())
    except OSError:
        pass
    return [s]


def and_away(name):
    for part in (b"\x10", hello(), hello() + frame(PING, 2)):
        s = connect(name, greet=False)
        send(s, part)
        s.close()
    s = connect(name)
    send(s, frame(PING, 2), flags=OOB)
    s.shutdown(socket.SHUT_RDWR)
    return [s]


def unseen(name, n):
    """Connections that nobody has accepted when their descriptors are there."""
    global d
    was, d = d, None
    was.stop()
    left = [connect(name, greet=False) for _ in range(n)]
    for s in left:
        send(s, hello())
    d = was
    return left


def beyond_the_limit(name):
    full = [connect(name) for _ in range(4)]
    full += unseen(name, 6)
    os.kill(d.pid, signal.SIGCONT)
    return full


def many(name):
    left = []
    for i in range(40):
        s = connect(name, greet=False)
        send(s, b"\x10" if i % 2 else hello())
        left.append(s)
    return left


def comes_back(name):
    """As many connections as before may be made, one after the other and at a time."""
    until = time.monotonic() + LIMIT_S
    while True:
        try:
            made = [connect(name) for _ in range(4 if name == "a" else 2)]
            break
        except (OSError, EOFError, AssertionError):
            assert time.monotonic() < until, f"no connection of {name} comes back"
            time.sleep(0.1)
    for s in made:
        s.close()


def attacked(d, what, name, base):
    neighbour = Neighbour()
    before, refused_before = d.status()["descriptors"], refused
    left = what(name)
    time.sleep(0.3)
    for s in left:
        s.close()
    comes_back(name)
    until = time.monotonic() + LIMIT_S
    while (now := d.status()["descriptors"])["closing"] or d.fds() > base + 1:  # the neighbour
        assert time.monotonic() < until, f"{what.__name__}: {now}, {d.fds()} descriptors, {base} before"
        time.sleep(0.05)
    neighbour.end()
    if looked:
        assert now["closed_apart"] > before["closed_apart"], (what.__name__, now)
        assert now["connections_ended"] > before["connections_ended"] or what is beyond_the_limit, (what.__name__, now)
        assert refused == refused_before
    else:
        assert now["connections_ended"] == before["connections_ended"] and refused > refused_before, (what.__name__, now)
    print(f"{what.__name__} of {name}: the neighbour waited {neighbour.worst * 1e3:.0f} ms; ended {now['connections_ended']}, closed apart {now['closed_apart']}", flush=True)


attacks = [beside_hello, beside_three_bytes, beside_a_request, as_many_as_fit, out_of_band, out_of_band_replaced,
           out_of_band_at_the_door, and_away, beyond_the_limit, many]
d = None
queued = []
listeners = []
if given == "given":  # a client has connected and sent everything before the daemon starts
    for name in ("a", "admin"):
        s = socket.socket(socket.AF_UNIX)
        s.bind(f"{folder}/{name}.sock")
        s.listen(128)
        listeners.append((name if name == "admin" else f"tenant-{name}", s))
        for data in (hello(), b"\x10", hello() + frame(PING, 2)) * 4:
            queued.append(connect(name, greet=False))
            send(queued[-1], data)
    assert refused == 0

d = Daemon(listeners)
atexit.register(lambda: d.pid and os.kill(d.pid, signal.SIGKILL))
if queued:
    neighbour = Neighbour()
    time.sleep(0.5)
    for s in queued:
        s.close()
    comes_back("a")
    neighbour.end()
status = d.status()["descriptors"]
looked = status["mode"] != "refused by the kernel"
assert not preload or looked
if queued:
    assert d.status()["descriptors"]["connections_ended"] >= 12, status
    assert d.text().count("event=descriptors_sent door=admin") and d.text().count("event=descriptors_sent door=a "), d.text()
for name in ("a", "b", "admin"):  # a process that has connected is known until it exits
    comes_back(name)
while d.status()["descriptors"]["closing"]:
    time.sleep(0.05)
time.sleep(0.2)
base = d.fds()
for what in attacks:
    attacked(d, what, "a", base)
for what in attacks[:5]:
    attacked(d, what, "admin", base)
if looked:
    assert f"event=descriptors_sent door=a connections=1 pid={os.getpid()} " in d.text(), d.text()
    status = d.status()["descriptors"]
    assert status["connections_ended"] > 20, status

# The daemon ends although connections have arrived, some of them unseen.
left = many("a") + unseen("a", 8)
threading.Timer(0.1, lambda: os.kill(d.pid, signal.SIGCONT)).start()
d.end()
print(f"client_fds: ok, mode: {status['mode']}")
PYTHON
run() {
    python3 "$DIR/attack.py" "$TERND" "$CTL" "$DIR" "$@" || fail "with '$1', sockets $2"
    rm -f "$DIR"/*.sock
}
run "" own
run "" given
run "$(ternd_preload "$DIR/fds.so")" own
run "$(ternd_preload "$DIR/fds.so")" given
