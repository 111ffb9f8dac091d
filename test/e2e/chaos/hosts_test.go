// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/skyhook-k8s/skyhook/test/e2e/chaos/observer"
	"github.com/skyhook-k8s/skyhook/test/e2e/suite"
)

// hostUnits count on a host how often it boots, and how often the service of the interrupts starts.
const hostUnits = `
mkdir -p /var/log/chaos /var/lib/chaos
cat > /etc/systemd/system/chaos-boot.service <<'UNIT'
[Unit]
DefaultDependencies=no
After=local-fs.target
Before=` + observer.CountedService + ` kubelet.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'echo boot >> /var/log/chaos/boots'
[Install]
WantedBy=multi-user.target
UNIT
cat > /etc/systemd/system/` + observer.CountedService + ` <<'UNIT'
[Unit]
Requires=chaos-boot.service
After=chaos-boot.service
[Service]
ExecStartPre=/bin/sh -c 'echo start >> /var/log/chaos/starts'
ExecStart=/bin/sleep infinity
[Install]
WantedBy=multi-user.target
UNIT
systemctl daemon-reload
systemctl --quiet enable --now chaos-boot.service ` + observer.CountedService

// resetHost forgets earlier rounds. The host must be on.
const resetHost = `
rm -rf /var/lib/chaos/* /var/lib/skyhook /etc/skyhook /var/log/skyhook
systemctl start ` + observer.CountedService + `
echo boot > /var/log/chaos/boots
echo start > /var/log/chaos/starts`

func (r *run) prepareHosts() {
	r.Helper()
	cluster.Label(r.T, "chaos=yes", r.nodes...)
	cluster.Label(r.T, "chaos-pool=yes", r.nodes[:2]...)
	cluster.Label(r.T, "chaos-operation=yes", r.nodes[0], r.nodes[2])
	for _, n := range r.nodes {
		cluster.Exec(r.T, n, hostUnits)
	}
}

// observe begins a round with a new observer, and returns what ends it. It waits for the end of faults that nodes have.
func (r *run) observe() (stop func()) {
	r.Helper()
	r.nodeFault.Lock()
	defer r.nodeFault.Unlock()
	for _, n := range r.nodes {
		r.eventually("node "+n+" is reset", func(context.Context) error {
			_, err := cluster.TryExec(n, resetHost)
			return err
		})
	}
	compacts := []string{compact}
	if r.profile == recommended { // it pins images, and where the digest is known stages share pods
		compacts = append(compacts, settings, services, kernel)
	}
	o := observer.New(observer.Setup{
		Groups: []observer.Group{
			{Name: "pool", Limit: 1, Nodes: r.nodes[:2]},
			{Name: "default", Limit: 1, Nodes: r.nodes[2:]},
		},
		Protected:  []string{suite.Namespace + "/" + protectedPod},
		Protecting: []string{settings, services, kernel, compact},
		Compact:    compacts,
		Guarded:    guardedApp,
		MinReady:   2,
	})
	r.observer = o
	ctx, cancel := context.WithCancel(r.Context())
	factory := informers.NewSharedInformerFactory(r.machines.Client, 0)
	for _, watched := range []cache.SharedIndexInformer{factory.Core().V1().Nodes().Informer(), factory.Core().V1().Pods().Informer()} {
		tell := func(object any, isDeleted bool) {
			switch object := object.(type) {
			case *corev1.Node:
				o.NodeChanged(time.Now(), object)
			case *corev1.Pod:
				o.PodChanged(time.Now(), object, isDeleted)
			case cache.DeletedFinalStateUnknown:
				if p, isPod := object.Obj.(*corev1.Pod); isPod {
					o.PodVanished(time.Now(), p)
				}
			}
		}
		_, err := watched.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { tell(object, false) },
			UpdateFunc: func(_, object any) { tell(object, false) },
			DeleteFunc: func(object any) { tell(object, true) },
		})
		if err != nil {
			r.Fatal(err)
		}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	var readers sync.WaitGroup
	for _, n := range r.nodes {
		readers.Go(func() {
			for ctx.Err() == nil {
				_ = r.readHost(ctx, o, n) // what cannot be read now is read later
				select {
				case <-ctx.Done():
				case <-time.After(4 * time.Second):
				}
			}
		})
	}
	return sync.OnceFunc(func() {
		cancel()
		readers.Wait()
		factory.Shutdown()
	})
}

// readHost tells the observer what is on a host and what its node says about that. It fails while the node or the API server is down.
func (r *run) readHost(ctx context.Context, o *observer.Observer, node string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	before, err := r.machines.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	text, err := r.machines.Exec(ctx, node, "/bin/bash", "-c", observer.HostScript)
	if err != nil {
		return err
	}
	after, err := r.machines.Client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	h, err := observer.ParseHost(text)
	if err != nil {
		return err
	}
	o.HostRead(time.Now(), node, before.Annotations, after.Annotations, h)
	return nil
}

// ends returns how the work left the nodes.
func (r *run) ends() map[string]observer.End {
	r.Helper()
	all := map[string]observer.End{}
	for _, n := range r.nodes {
		r.eventually("node "+n+" is read at the end", func(ctx context.Context) error {
			if err := r.readHost(ctx, r.observer, n); err != nil {
				return err
			}
			text, err := r.machines.Exec(ctx, n, "/bin/bash", "-c", observer.TreeScript)
			if err != nil {
				return err
			}
			files, err := observer.ParseTree(text)
			if err != nil {
				return err
			}
			o, err := r.machines.Client.CoreV1().Nodes().Get(ctx, n, metav1.GetOptions{})
			if err != nil {
				return err
			}
			labels := maps.Clone(o.Labels)
			all[n] = observer.End{Files: files, Marks: observer.Marks(o.Annotations, labels), Interrupts: r.observer.Interrupts(n)}
			return nil
		})
		if len(all[n].Files) == 0 {
			r.Fatal(fmt.Errorf("node %s has no files", n))
		}
	}
	return all
}
