// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package skyhook_test

import (
	"fmt"
	"strings"
	"testing"
)

// diary is a package that writes a line for each stage it goes through.
func diary(version, motd string) string {
	return fmt.Sprintf(`
    diary:
      version: %s
      image: %s
      configInterrupts:
        "motd*": {type: service, services: [cron]}
      configMap:
        motd.conf: %q
        note.txt: "a note"
        apply.sh: echo "apply %[1]s" >> /var/log/diary
        config.sh: echo "config $(cat $SKYHOOK_DIR/configmaps/motd.conf)" >> /var/log/diary
        post_interrupt.sh: echo "post-interrupt" >> /var/log/diary
        upgrade.sh: echo "upgrade to %[1]s" >> /var/log/diary
        uninstall.sh: echo "uninstall %[1]s" >> /var/log/diary
        uninstall_check.sh: test -s /var/log/diary`, version, shellscript, motd)
}

func story(name, spec, packages string) string {
	return fmt.Sprintf(`
apiVersion: skyhook.nvidia.com/v1alpha1
kind: Skyhook
metadata: {name: %s}
spec:
  nodeSelectors: {matchLabels: {story: %s}}%s
  packages: %s
`, name, name, spec, packages)
}

// service says when a unit was started last: its id changes with each start.
func service(t *testing.T, node, unit string) string {
	t.Helper()
	return on(t, node, "systemctl show -p MainPID -p InvocationID --value "+unit+" | tr '\\n' ' '")
}

// TestLifecycle takes one package through its whole life on one node. What the host keeps is a diary of its stages.
func TestLifecycle(t *testing.T) {
	const name, n = "life", "n1"
	label(t, name, n)
	on(t, n, "rm -f /var/log/diary")
	read := func() string { return strings.ReplaceAll(on(t, n, "cat /var/log/diary"), "\n", ", ") }
	want := ""
	expect := func(lines string) {
		t.Helper()
		complete(t, name)
		want = strings.TrimPrefix(want+", "+lines, ", ")
		if got := read(); got != want {
			t.Fatalf("the diary of the host reads\n%s\nwant\n%s", got, want)
		}
	}
	cron := service(t, n, "cron")

	apply(t, story(name, "", diary("1.0.0", "one")))
	expect("apply 1.0.0, config one")

	t.Log("a changed key without an interrupt runs config only")
	apply(t, strings.Replace(story(name, "", diary("1.0.0", "one")), `"a note"`, `"another note"`, 1))
	expect("config one")
	if got := service(t, n, "cron"); got != cron {
		t.Errorf("cron was restarted though no changed key asks for it: %s, before %s", got, cron)
	}

	t.Log("a changed key with an interrupt restarts its service once, and post-interrupt follows")
	apply(t, story(name, "", diary("1.0.0", "two")))
	expect("config two, post-interrupt")
	after := service(t, n, "cron")
	if after == cron {
		t.Errorf("cron was not restarted: %s", after)
	}

	t.Log("a higher version upgrades")
	apply(t, story(name, "", diary("1.1.0", "two")))
	expect("upgrade to 1.1.0, config two")

	t.Log("a lower version uninstalls what is there, with its own definition, and applies the other")
	apply(t, story(name, "", diary("1.0.0", "two")))
	expect("uninstall 1.1.0, apply 1.0.0, config two")

	t.Log("removal uninstalls with the definition that was installed")
	apply(t, story(name, "", "{}"))
	expect("uninstall 1.0.0")
	if got := must(t, "get", "node", n, "-o", `jsonpath={.metadata.annotations.skyhook\.nvidia\.com/nodeState_life}`); got != "{}" {
		t.Errorf("nodeState after the last package went: %q, want {}", got)
	}
	if got := service(t, n, "cron"); got != after {
		t.Errorf("cron was restarted by an upgrade or uninstall that has no interrupt: %s, before %s", got, after)
	}
	remove(t, name)
}

// TestHandReset: deleting the annotation by hand is the documented way to begin again on a node.
func TestHandReset(t *testing.T) {
	const name, n = "again", "n2"
	label(t, name, n)
	on(t, n, "rm -f /var/log/diary")
	apply(t, story(name, "", diary("1.0.0", "one")))
	complete(t, name)
	must(t, "annotate", "node", n, "skyhook.nvidia.com/nodeState_again-")
	eventually(t, "the package runs again", func() error {
		if got := on(t, n, "grep -c apply /var/log/diary"); got != "2" {
			return fmt.Errorf("applied %s times", got)
		}
		return nil
	})
	complete(t, name)
	remove(t, name)
}

// TestDependencies: a chain of packages runs in its order, an independent one beside it, and a failing one says why.
func TestDependencies(t *testing.T) {
	const name, n = "chain", "n2"
	label(t, name, n)
	on(t, n, "rm -f /var/log/chain")
	pkg := func(name, more, body string) string {
		return fmt.Sprintf("\n    %s: {version: 1.0.0, image: %s%s, configMap: {apply.sh: %q}}", name, shellscript, more, body)
	}
	write := func(s string) string { return "echo " + s + " >> /var/log/chain" }
	apply(t, story(name, "", pkg("top", ", dependsOn: {middle: 1.0.0}", write("top"))+
		pkg("middle", ", dependsOn: {ground: 1.0.0}", write("middle"))+
		pkg("ground", "", "sleep 3; "+write("ground"))+
		pkg("broken", "", "echo the disk is on fire >&2; exit 7")))
	eventually(t, "the chain ran in order although another package fails", func() error {
		if got := on(t, n, "cat /var/log/chain 2>/dev/null | tr '\\n' ' ' || true"); got != "ground middle top" {
			return fmt.Errorf("ran: %q", got)
		}
		return nil
	})
	eventually(t, "the failure is told with its last lines", func() error {
		s, err := look(name)
		if err != nil {
			return err
		}
		_, reason, message := s.condition("Ready")
		if s.Status.Status != "erroring" || !strings.Contains(message, "the disk is on fire") {
			return fmt.Errorf("status %q, Ready reason %s: %s", s.Status.Status, reason, message)
		}
		return nil
	})
	apply(t, story(name, "", pkg("top", ", dependsOn: {middle: 1.0.0}", write("top"))+
		pkg("middle", ", dependsOn: {ground: 1.0.0}", write("middle"))+
		pkg("ground", "", "sleep 3; "+write("ground"))+
		pkg("broken", "", "echo the fire is out")))
	complete(t, name)
	remove(t, name)
}
