// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

// Package options declares the operator's settings once: flag, environment variable, default, help and meaning. The
// operator parses its own arguments with this table. The plugin reads the Deployment of a running operator with the
// same table, so that both decide with the same configuration.
package options

import (
	"path"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/nodeop"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// Options are the operator's settings. Those that a decision depends on are written to JSON, which is how a dump keeps
// them. The field names in JSON are part of the dump format.
type Options struct {
	Namespace string `json:"namespace"`
	Node      string `json:"node,omitempty"` // the operator runs on; empty when unknown
	PodSettings
	NodeOpSettings

	Profile             string       `json:"profile,omitempty"`
	RuntimeTaint        corev1.Taint `json:"runtimeTaint"`
	ReapplyOnReboot     bool         `json:"reapplyOnReboot,omitempty"`
	TrustAgentReboots   bool         `json:"trustAgentReboots,omitempty"`
	KeepRemovedPackages bool         `json:"keepRemovedPackages,omitempty"`
	DefaultPolicy       string       `json:"defaultDeploymentPolicy,omitempty"`
	DefaultPolicySpec   string       `json:"-"`
	PrometheusEndpoints []string     `json:"prometheusEndpoints,omitempty"`

	ProcessSettings `json:"-"`
}

// PodSettings are settings of the pods that run packages.
type PodSettings struct {
	AgentImage        string          `json:"agentImage"`
	PauseImage        string          `json:"pauseImage"`
	CopyDirRoot       string          `json:"copyDirRoot"`
	LogRoot           string          `json:"logRoot"`
	ImagePullSecret   string          `json:"imagePullSecret,omitempty"`
	ServiceAccount    string          `json:"serviceAccount,omitempty"`
	OwnAccount        string          `json:"ownAccount,omitempty"`
	AlwaysPull        bool            `json:"alwaysPull,omitempty"`
	PinImages         *bool           `json:"pinImages,omitempty"`
	Prepull           *bool           `json:"prepull,omitempty"`
	PodLayout         string          `json:"podLayout,omitempty"`
	ImageVolumesFrom  string          `json:"imageVolumesFrom,omitempty"`
	StageDeadline     metav1.Duration `json:"stageDeadline"`
	InterruptDeadline metav1.Duration `json:"interruptDeadline"`
	InterruptMemory   string          `json:"interruptMemory"`
}

// NodeOpSettings are settings of NodeOps.
type NodeOpSettings struct {
	NodeOpDefaultImage  string   `json:"nodeOpDefaultImage"`
	NodeOpSentinelImage string   `json:"nodeOpSentinelImage,omitempty"`
	NodeOpNamespaces    []string `json:"nodeOpNamespaces,omitempty"` // empty for all
	KairosLabels        bool     `json:"kairosLabels"`
}

// ProcessSettings are settings that no decision depends on: they are in no dump. The plugin must not read the file of a token because a
// Deployment names it.
type ProcessSettings struct {
	PrometheusTokenFile string
	Parallel            int
	LeaderElection      bool
	WaitForOthers       bool
	GuardRemoval        bool
	MetricsAddress      string
	MetricsSecure       bool
	MetricsCertDir      string
	ProbeAddress        string
	PprofAddress        string
	LogEncoder          string
	LogLevel            string
	LogStackLevel       string
	LogTimeEncoder      string
	Kubeconfig          string
	Ignored             []string // settings that were given and have no effect
}

// Skyhook is the configuration with which Skyhooks are compiled.
func (o *Options) Skyhook(version string) plan.Config {
	return plan.Config{
		Namespace: o.Namespace, Profile: v1alpha1.Profile(o.Profile), AgentImage: o.AgentImage, PauseImage: o.PauseImage,
		CopyDirRoot: path.Clean(o.CopyDirRoot), LogRoot: path.Clean(o.LogRoot), RuntimeTaint: o.RuntimeTaint,
		ReapplyOnReboot: o.ReapplyOnReboot, TrustAgentReboots: o.TrustAgentReboots,
		ImagePullSecret: o.ImagePullSecret, ServiceAccount: o.ServiceAccount, OwnAccount: o.OwnAccount, AlwaysPull: o.AlwaysPull, PinImages: o.PinImages, Prepull: o.Prepull,
		StageDeadline: o.StageDeadline.Duration, InterruptDeadline: o.InterruptDeadline.Duration, InterruptMemory: o.InterruptMemory,
		KeepRemovedPackages: o.KeepRemovedPackages, DefaultPolicy: o.DefaultPolicy, Version: version,
		PrometheusEndpoints: o.PrometheusEndpoints,
		PodLayout:           plan.PodLayout(o.PodLayout), ImageVolumesFrom: o.ImageVolumesFrom,
	}
}

// NodeOps is the configuration with which NodeOps are compiled.
func (o *Options) NodeOps() nodeop.Config {
	return nodeop.Config{
		Namespace: o.Namespace, AgentImage: o.AgentImage, DefaultImage: o.NodeOpDefaultImage, SentinelImage: o.NodeOpSentinelImage,
		CopyDirRoot: path.Clean(o.CopyDirRoot), LogRoot: path.Clean(o.LogRoot), PullSecrets: plan.PullSecrets(o.ImagePullSecret),
		LabelKairos: o.KairosLabels, Namespaces: o.NodeOpNamespaces,
	}
}
