// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/test/testenv"
)

// program is a process that runs as a container of the chart would.
type program struct {
	cmd *exec.Cmd
	log *log
}

// log is what a program wrote so far.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// startContainer runs the container of a pod: its arguments, its environment, its ServiceAccount.
func startContainer(t *testing.T, namespace string, pod corev1.PodSpec) *program {
	t.Helper()
	c := pod.Containers[0]
	if c.Command[0] != "/manager" {
		t.Fatalf("the container runs %v", c.Command)
	}
	args := append(c.Command[1:len(c.Command):len(c.Command)], c.Args...)
	p := &program{log: &log{}, cmd: exec.Command(filepath.Join(programs, "operator"), append(args, "--kubeconfig", writeAccountKubeconfig(t, namespace, pod.ServiceAccountName))...)}
	mounts := mountSecrets(t, namespace, pod)
	for _, e := range c.Env {
		value := e.Value
		if folder, ok := mounts[value]; ok {
			value = folder
		}
		switch from := e.ValueFrom; {
		case from == nil:
		case from.ResourceFieldRef != nil:
			limit := c.Resources.Limits[corev1.ResourceName(strings.TrimPrefix(from.ResourceFieldRef.Resource, "limits."))]
			value = strconv.FormatInt(limit.Value(), 10) // rounded up, as kubelets do
		default:
			value = map[string]string{"metadata.namespace": namespace, "spec.nodeName": "n1"}[from.FieldRef.FieldPath]
		}
		if value == ":8080" || value == ":8081" {
			value = "0" // the chart's own ports belong to a pod, not to this machine
		}
		p.cmd.Env = append(p.cmd.Env, e.Name+"="+value)
	}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// mountSecrets writes the Secrets that a pod mounts into folders of this machine: those by the paths of their mounts.
func mountSecrets(t *testing.T, namespace string, pod corev1.PodSpec) map[string]string {
	t.Helper()
	folders := map[string]string{}
	for _, mount := range pod.Containers[0].VolumeMounts {
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
		if pod.Volumes[i].Secret == nil {
			continue
		}
		secret, err := newClientset(t).CoreV1().Secrets(namespace).Get(context.Background(), pod.Volumes[i].Secret.SecretName, metav1.GetOptions{})
		if err != nil {
			continue // such as one whose folder the test itself writes
		}
		folder := t.TempDir()
		for file, content := range secret.Data {
			if err := os.WriteFile(filepath.Join(folder, file), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		folders[mount.MountPath] = folder
	}
	return folders
}

// startOperator runs the operator of the chart's Deployment until the test ends or end is called.
func startOperator(t *testing.T, namespace string) (p *program, end func()) {
	t.Helper()
	return startDeployment(t, namespace, releaseName+"-controller-manager")
}

// startDeployment runs the operator of a Deployment until the test ends or end is called, and waits until it leads.
func startDeployment(t *testing.T, namespace, name string) (p *program, end func()) {
	t.Helper()
	p, end = startStandby(t, namespace, name)
	p.waitLog(t, "starting reconcile loop")
	return p, end
}

// waitLog waits until the program has logged a text.
func (p *program) waitLog(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !strings.Contains(p.log.String(), text); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after two minutes the operator has not logged %q:\n%s", text, p.log)
		}
	}
}

// startStandby runs the operator of a Deployment until the test ends or end is called. It need not lead.
func startStandby(t *testing.T, namespace, name string) (p *program, end func()) {
	t.Helper()
	d, err := newClientset(t).AppsV1().Deployments(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p = startContainer(t, namespace, d.Spec.Template.Spec)
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself, which Wait tells
		hangs := time.AfterFunc(time.Minute, func() { _ = p.cmd.Process.Signal(syscall.SIGQUIT) })
		defer hangs.Stop()
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("the operator ended: %v", err)
		}
		if t.Failed() {
			t.Logf("the operator said:\n%s", p.log)
		}
	}
	t.Cleanup(end)
	return p, end
}

// waitObserved waits until a new operator has observed a Skyhook, after an edit that causes no work.
func waitObserved(w *testenv.Env, name string) {
	w.Helper()
	w.Patch(w.GetSkyhook(name), fmt.Sprintf(`{"spec":{"priority":%d}}`, w.GetSkyhook(name).Spec.Priority+1))
	w.WaitComplete(name)
}

// startJobController starts a fake Job controller, which runs the program of each Job, until the test ends.
func startJobController(t *testing.T, namespace string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Add(1)
	go func() {
		defer done.Done()
		seen := map[string]bool{}
		for ctx.Err() == nil {
			list, err := newClientset(t).BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{})
			if err == nil {
				for i := range list.Items {
					if j := &list.Items[i]; !seen[string(j.UID)] {
						seen[string(j.UID)] = true
						runJob(t, j)
					}
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond): // another process makes the Job
			}
		}
	}()
	t.Cleanup(func() { stop(); done.Wait() })
}

// runJob runs a Job and sets its status, as the Job controller does.
func runJob(t *testing.T, j *batchv1.Job) {
	p := startContainer(t, j.Namespace, j.Spec.Template.Spec)
	err := p.cmd.Wait()
	t.Logf("%s: %v\n%s", strings.Join(j.Spec.Template.Spec.Containers[0].Command, " "), err, p.log)
	setJobStatus(j, err == nil)
	if _, err := newClientset(t).BatchV1().Jobs(j.Namespace).UpdateStatus(context.Background(), j, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Errorf("saying how a Job went: %v", err)
	}
}

// setJobStatus sets the status of a Job that has ended.
func setJobStatus(j *batchv1.Job, well bool) {
	now := metav1.Now()
	j.Status.StartTime = &now
	met, end, reason := batchv1.JobFailureTarget, batchv1.JobFailed, "BackoffLimitExceeded"
	if well {
		met, end, reason = batchv1.JobSuccessCriteriaMet, batchv1.JobComplete, ""
		j.Status.Succeeded, j.Status.CompletionTime = 1, &now
	} else {
		j.Status.Failed = 1
	}
	for _, c := range []batchv1.JobConditionType{met, end} {
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: c, Status: corev1.ConditionTrue, Reason: reason, LastTransitionTime: now, LastProbeTime: now})
	}
	j.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
}
