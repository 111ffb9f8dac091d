// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package testcluster

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

// Labels, annotations and taints of simulated nodes.
const (
	SimulatedLabel = "skyhook.test/simulated" // on every simulated node, with the value true
	kwokAnnotation = "kwok.x-k8s.io/node"     // selects the nodes that kwok manages
	simulatedTaint = "skyhook.test/simulated" // true:NoSchedule, if SimulatedTaint is set
)

// SimulatedName is the name of simulated node i, counted from 1.
func SimulatedName(i int) string { return fmt.Sprintf("sim-%05d", i) }

// startSimulation starts kwok, which simulates kubelets.
func (k *supervisor) startSimulation() error {
	if k.spec.Simulated == 0 {
		return nil
	}
	config := filepath.Join(k.paths.dir, "stages.yaml")
	text, err := stageFile(k.spec.SimulatedDelay)
	if err != nil {
		return err
	}
	if err := os.WriteFile(config, text, 0o644); err != nil {
		return fmt.Errorf("writing the stages of simulated pods: %w", err)
	}
	lease := max(40, int(k.spec.effectiveGracePeriod().Seconds())/4)
	return k.runProgram("kwok", k.apiReady, []string{
		filepath.Join(k.artifacts.Kwok, "kwok"), "--kubeconfig=" + filepath.Join(k.paths.pki(), "admin.kubeconfig"), "--config=" + config,
		"--manage-all-nodes=false", "--manage-nodes-with-annotation-selector=" + kwokAnnotation + "=fake",
		fmt.Sprintf("--node-lease-duration-seconds=%d", lease), "--node-ip=10.77.2.1", "--cidr=10.128.0.0/10", "--server-address=127.0.0.1:10247", "--v=WARN",
	})
}

// stageFile renders kwok's configuration of nodes and pods.
func stageFile(delay time.Duration) ([]byte, error) {
	type filling struct {
		Delay    int64 // milliseconds
		Instant  bool  // init containers without a delay of their own complete at once
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

// createSimulatedNodes creates the simulated nodes in parallel.
func (c *Cluster) createSimulatedNodes(ctx context.Context, s Spec) error {
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
				if err := c.createSimulatedNode(ctx, SimulatedName(i), labels, taints); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	err := sendNumbers(numbers, failed, s.Simulated)
	wait.Wait()
	select {
	case last := <-failed:
		return errors.Join(err, last)
	default:
		return err
	}
}

// sendNumbers sends the numbers 1 to n until a receiver fails.
func sendNumbers(numbers chan<- int, failed <-chan error, n int) error {
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

func (c *Cluster) createSimulatedNode(ctx context.Context, name string, labels map[string]string, taints []corev1.Taint) error {
	own := map[string]string{"kubernetes.io/hostname": name}
	for key, value := range labels {
		own[key] = value
	}
	_, err := c.Client.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: own, Annotations: map[string]string{kwokAnnotation: "fake"}},
		Spec:       corev1.NodeSpec{Taints: taints},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating simulated node %s: %w", name, err)
	}
	return nil
}
