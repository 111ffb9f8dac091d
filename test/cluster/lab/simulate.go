// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"text/template"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

//go:embed stages.yaml
var stages embed.FS

// Marks of a simulated node.
const (
	SimulatedLabel = "skyhook.test/simulated" // on every simulated node, with the value true
	kwokAnnotation = "kwok.x-k8s.io/node"     // what kwok looks for
	simulatedTaint = "skyhook.test/simulated" // true:NoSchedule, where it was asked for
)

// SimulatedName is the name of simulated node i, counted from 1.
func SimulatedName(i int) string { return fmt.Sprintf("sim-%05d", i) }

// startSimulation starts kwok, which plays the kubelets of simulated nodes.
func (k *keeper) startSimulation() error {
	if k.spec.Simulated == 0 {
		return nil
	}
	config := filepath.Join(k.place.dir, "stages.yaml")
	text, err := stageFile(k.spec.SimulatedDelay)
	if err != nil {
		return err
	}
	if err := os.WriteFile(config, text, 0o644); err != nil {
		return fmt.Errorf("writing the stages of simulated pods: %w", err)
	}
	lease := max(40, int(k.spec.grace().Seconds())/4)
	return k.run("kwok", k.apiReady, []string{
		filepath.Join(k.made.Kwok, "kwok"), "--kubeconfig=" + filepath.Join(k.place.pki(), "admin.kubeconfig"), "--config=" + config,
		"--manage-all-nodes=false", "--manage-nodes-with-annotation-selector=" + kwokAnnotation + "=fake",
		fmt.Sprintf("--node-lease-duration-seconds=%d", lease), "--node-ip=10.77.2.1", "--cidr=10.128.0.0/10", "--server-address=127.0.0.1:10247", "--v=WARN",
	})
}

// stageFile is what kwok is told about nodes and pods.
func stageFile(delay time.Duration) ([]byte, error) {
	type filling struct {
		Delay    int64 // milliseconds
		Instant  bool  // init containers without a delay of their own are done at once
		Stepwise *filling
	}
	f := filling{Delay: delay.Milliseconds(), Instant: delay == 0, Stepwise: &filling{Delay: delay.Milliseconds()}}
	text, err := template.New("stages.yaml").Delims("[[", "]]").ParseFS(stages, "stages.yaml")
	if err != nil {
		return nil, fmt.Errorf("filling in the stages of simulated pods: %w", err)
	}
	var out bytes.Buffer
	if err := text.Execute(&out, f); err != nil {
		return nil, fmt.Errorf("filling in the stages of simulated pods: %w", err)
	}
	return out.Bytes(), nil
}

// simulate makes the simulated nodes.
func (c *Cluster) simulate(ctx context.Context, s Spec) error {
	labels := map[string]string{SimulatedLabel: "true", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
	for _, l := range s.Labels {
		if l.Node == "" {
			labels[l.Key] = l.Value
		}
	}
	var taints []corev1.Taint
	if s.SimulatedTaint {
		taints = []corev1.Taint{{Key: simulatedTaint, Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	}
	const makers = 16
	numbers, failed := make(chan int), make(chan error, makers)
	var wait sync.WaitGroup
	for range makers {
		wait.Go(func() {
			for i := range numbers {
				if err := c.simulateNode(ctx, SimulatedName(i), labels, taints); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	err := feed(numbers, failed, s.Simulated)
	wait.Wait()
	select {
	case last := <-failed:
		return errors.Join(err, last)
	default:
		return err
	}
}

// feed hands out the numbers 1 to n until one fails.
func feed(numbers chan<- int, failed <-chan error, n int) error {
	defer close(numbers)
	for i := 1; i <= n; i++ {
		select {
		case numbers <- i:
		case err := <-failed:
			return err
		}
	}
	return nil
}

func (c *Cluster) simulateNode(ctx context.Context, name string, labels map[string]string, taints []corev1.Taint) error {
	own := map[string]string{"kubernetes.io/hostname": name}
	for key, value := range labels {
		own[key] = value
	}
	_, err := c.Client.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: own, Annotations: map[string]string{kwokAnnotation: "fake"}},
		Spec:       corev1.NodeSpec{Taints: taints},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("making simulated node %s: %w", name, err)
	}
	return nil
}
