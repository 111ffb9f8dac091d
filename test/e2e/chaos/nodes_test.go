// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/test/cluster/faults"
	"github.com/skyhook-k8s/skyhook/test/e2e/chaos/observer"
	"github.com/skyhook-k8s/skyhook/test/e2e/chaos/schedule"
	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// What runs on a host for some faults. A hanging unit holds up a shutdown; it is in /run, so that the next boot does not have it. What
// fills the disk are full file systems over the directories of the packages and of the logs, and a file in that of the agent's records,
// which is a small disk: the disk of the machine is not filled. The file outlives boots.
const (
	hang = `cat > /run/systemd/system/chaos-hang.service <<'UNIT'
[Service]
ExecStart=/bin/sleep infinity
ExecStop=/bin/sleep 25
TimeoutStopSec=30
UNIT
systemctl daemon-reload; systemctl start chaos-hang.service`
	fill = `for d in /var/lib/chaos /var/log/skyhook; do
mkdir -p $d; mount -t tmpfs -o size=16k,mode=755 tmpfs $d; head -c 16384 /dev/zero > $d/full; done
if mountpoint -q /var/lib/skyhook; then head -c 1G /dev/zero > ` + observer.FullFile + ` 2>/dev/null; fi; true`
	unfill = `rm -f ` + observer.FullFile + `
for d in /var/lib/chaos /var/log/skyhook; do mountpoint -q $d && umount -l $d; done; true`
)

// breakNode makes a fault of a node happen and returns when the node works again.
func (i *injector) breakNode(ctx context.Context, e schedule.Event) error {
	after := context.WithoutCancel(ctx)
	switch e.Kind {
	case schedule.CutPower:
		return i.cutPower(ctx, e)
	case schedule.CutCompact:
		return i.cutCompact(ctx, e)
	case schedule.HangReboot:
		return i.hangReboot(ctx, e)
	case schedule.CutNetwork:
		err := i.machines.Disconnect(ctx, e.Node)
		return errors.Join(err, sleep(ctx, e.For), i.machines.Reconnect(after, e.Node))
	case schedule.RestartKubelet:
		i.try(ctx, e.Node, "systemctl restart kubelet")
	case schedule.RestartContainerd:
		i.try(ctx, e.Node, "systemctl restart containerd")
	case schedule.FillDisk:
		i.try(ctx, e.Node, fill)
		err := sleep(ctx, e.For)
		return errors.Join(err, i.retry(after, func(ctx context.Context) error {
			_, err := i.machines.Exec(ctx, e.Node, "/bin/bash", "-c", unfill)
			return err
		}))
	case schedule.WrongClock:
		return i.setFor(ctx, e, faults.Fault{User: "^system:node:" + e.Node + "$", Method: operatorWrites, Skew: faults.Duration(e.Skew)})
	case schedule.HideImages:
		err := i.machines.HideImages(ctx, suite.PackageRepository+"shellscript", suite.Images+"/agent")
		i.try(ctx, e.Node, "ctr -n k8s.io images ls -q | grep -e shellscript -e /agent | xargs -r ctr -n k8s.io images rm")
		return errors.Join(err, sleep(ctx, e.For), i.machines.HideImages(after))
	default:
		return fmt.Errorf("no way to make this happen: %s", e.Kind)
	}
	return nil
}

// cutPower waits for a pod of a stage, cuts the power of its node, and switches it on again. When there was none for half of the time, a
// pod of any stage will do.
func (i *injector) cutPower(ctx context.Context, e schedule.Event) error {
	const stage = "skyhook.nvidia.com/stage"
	node, during, begin := e.Node, "", time.Now()
	for during == "" && time.Since(begin) < e.For*3/4 {
		selector := stage
		if time.Since(begin) < e.For/2 {
			selector += "=" + e.Stage
		}
		list, err := i.machines.Client.CoreV1().Pods(suite.OperatorNamespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err == nil && len(list.Items) > 0 {
			p := &list.Items[e.Index%len(list.Items)]
			node, during = p.Spec.NodeName, p.Labels[stage]
			i.say("  the pod is %s", describePod(p))
		} else if err := sleep(ctx, 250*time.Millisecond); err != nil {
			return err
		}
	}
	return i.crash(ctx, node, e.For-time.Since(begin), func() { i.noteCut(during) })
}

// hangReboot holds up the next shutdown of a node. If nobody else reboots it, this does.
func (i *injector) hangReboot(ctx context.Context, e schedule.Event) error {
	before, err := i.machines.BootID(ctx, e.Node)
	if err != nil {
		return nil // the API server does not answer; the next one will hang
	}
	i.try(ctx, e.Node, hang)
	for begin, isAsked := time.Now(), false; time.Since(begin) < e.For+time.Minute; {
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
		now, err := i.machines.BootID(ctx, e.Node)
		if err == nil && now != before {
			return nil
		}
		if !isAsked && time.Since(begin) > e.For/3 {
			isAsked = true
			i.observer.ExpectBoot(e.Node)
			i.try(ctx, e.Node, "systemctl --no-block reboot")
		}
	}
	return fmt.Errorf("node %s did not boot", e.Node)
}
