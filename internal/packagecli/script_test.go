// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package packagecli_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/skyhook-k8s/skyhook/internal/cli"
	"github.com/skyhook-k8s/skyhook/internal/image"
)

// TestMain lets the scripts call this test binary as the plugin.
func TestMain(m *testing.M) { testscript.Main(suite{m}, map[string]func(){"kubectl-skyhook": plugin}) }

func plugin() {
	os.Exit(cli.Run(context.Background(), cli.Line{
		Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Version: "v0.9.0-test",
	}))
}

type suite struct{ m *testing.M }

// Run runs the tests, and removes the agent that they built.
func (s suite) Run() int {
	code := s.m.Run()
	_ = os.RemoveAll(agentDir())
	return code
}

var update = flag.Bool("update", false, "write what the commands print into the scripts")

// TestPackages runs the scripts of the commands for package authors. Each has a registry, a registry with a password,
// and a base image with sh, mkdir and cp.
func TestPackages(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			quiet := registry.Logger(log.New(io.Discard, "", 0))
			open := httptest.NewServer(registry.New(quiet, registry.WithReferrersSupport(true)))
			closed := httptest.NewServer(locked(registry.New(quiet), "me", "secret"))
			env.Defer(func() { open.Close(); closed.Close() })
			env.Setenv("REGISTRY", strings.TrimPrefix(open.URL, "http://"))
			env.Setenv("LOCKED", strings.TrimPrefix(closed.URL, "http://"))
			env.Setenv("BASE", filepath.Join(env.WorkDir, "base"))
			env.Setenv("HOME", env.WorkDir)
			return makeBase(filepath.Join(env.WorkDir, "base"))
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exitsCmd, "same": sameCmd, "login": loginCmd, "digestof": digestOfCmd, "agent": agentCmd,
			"attachsignature": attachSignatureCmd,
		},
		Condition: func(name string) (bool, error) {
			if name == "namespaces" {
				return canCreateNamespaces(), nil
			}
			return false, fmt.Errorf("condition %q is not known", name)
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
	})
}

// builtAgent builds the agent's program once, and returns its path.
var builtAgent = sync.OnceValues(func() (string, error) {
	cmd := exec.Command("go", "build", "-o", agentDir()+"/", "./cmd/skyhook-agent")
	cmd.Dir = "../.."
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the agent: %w\n%s", err, said)
	}
	return filepath.Join(agentDir(), "skyhook-agent"), nil
})

func agentDir() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("skyhook-packagecli-test-%d", os.Getpid()))
}

// agentCmd puts the agent's program into PATH: agent.
func agentCmd(ts *testscript.TestScript, _ bool, _ []string) {
	agent, err := builtAgent()
	ts.Check(err)
	ts.Setenv("PATH", filepath.Dir(agent)+string(filepath.ListSeparator)+ts.Getenv("PATH"))
}

// canCreateNamespaces reports whether this process may create namespaces.
func canCreateNamespaces() bool {
	cmd := exec.Command("true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
	}
	return cmd.Run() == nil
}

// locked requires a password.
func locked(next http.Handler, user, password string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, ok := r.BasicAuth(); !ok || u != user || p != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="packages"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// makeBase writes a base image for two platforms with placeholders for the programs that copy a package.
func makeBase(dir string) error {
	idx, err := image.Build(image.Recipe{Trees: func(p v1.Platform) ([]*image.Tree, error) {
		t := &image.Tree{}
		t.Bytes("/usr/bin/sh", 0o755, []byte("sh for "+p.String()))
		t.Symlink("/usr/bin/cp", "sh")
		t.Symlink("/usr/bin/mkdir", "/bin/sh")
		t.Symlink("/bin", "usr/bin")
		return []*image.Tree{t}, nil
	}}, image.DefaultPlatforms())
	if err != nil {
		return err
	}
	return image.WriteLayout(dir, image.Named{Name: "example.org/base:1", Index: idx})
}

// exitsCmd runs a program and wants exactly this exit code: exits CODE PROGRAM [ARGUMENT…].
func exitsCmd(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// sameCmd wants two files to be equal, or not: same A B.
func sameCmd(ts *testscript.TestScript, neg bool, args []string) {
	a, b := ts.ReadFile(args[0]), ts.ReadFile(args[1])
	if (a == b) == neg {
		ts.Fatalf("%s and %s: equal is %v", args[0], args[1], a == b)
	}
}

// loginCmd leaves credentials as docker login does: login REGISTRY USER PASSWORD.
func loginCmd(ts *testscript.TestScript, _ bool, args []string) {
	dir := ts.MkAbs("docker")
	ts.Check(os.MkdirAll(dir, 0o755))
	secret := base64.StdEncoding.EncodeToString([]byte(args[1] + ":" + args[2]))
	ts.Check(os.WriteFile(filepath.Join(dir, "config.json"), fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, args[0], secret), 0o600))
	ts.Setenv("DOCKER_CONFIG", dir)
}

// attachSignatureCmd stores beside an image what cosign sign does in its two formats, without a signature: attachsignature IMAGE.
func attachSignatureCmd(ts *testscript.TestScript, _ bool, args []string) {
	r := image.Registry{PlainHTTP: true}
	index, err := r.Pull(context.Background(), args[0])
	ts.Check(err)
	_, err = r.Attach(context.Background(), args[0], index, image.Artifact{Type: "application/vnd.dev.sigstore.bundle.v0.3+json", Content: []byte("{}")})
	ts.Check(err)
	ref, err := r.Reference(args[0])
	ts.Check(err)
	digest, err := index.Digest()
	ts.Check(err)
	img, err := random.Image(16, 1)
	ts.Check(err)
	ts.Check(remote.Write(ref.Context().Tag(strings.Replace(digest.String(), ":", "-", 1)+".sig"), img))
}

var digestRule = regexp.MustCompile(`sha256:[0-9a-f]{64}`)

// digestOfCmd remembers the first digest of a file in a variable: digestof FILE VARIABLE.
func digestOfCmd(ts *testscript.TestScript, _ bool, args []string) {
	found := digestRule.Find(bytes.TrimSpace([]byte(ts.ReadFile(args[0]))))
	if found == nil {
		ts.Fatalf("%s has no digest", args[0])
	}
	ts.Setenv(args[1], string(found))
}
