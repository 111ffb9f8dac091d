// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package render

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/internal/node"
	"github.com/skyhook-k8s/skyhook/internal/skyhook/plan"
)

// Redact replaces, in place, the values of environment variables in Skyhooks and in frozen definitions. It returns the
// changed hashes of definitions and pod contents, old to new: records of the old hash must be changed to
// the new one.
func Redact(hooks []*v1alpha1.Skyhook, maps []*corev1.ConfigMap, c plan.Config, hide func(string) string) map[string]string {
	renamed := map[string]string{}
	note := func(s *v1alpha1.Skyhook, was, is *plan.Definition) {
		if was.Hash != is.Hash {
			renamed[was.Hash] = is.Hash
		}
		by := Renderer{&plan.Facts{Skyhook: s, Config: c}}
		for _, isCompact := range []bool{false, true} {
			from, to := by.ContentOf(&plan.Step{Definition: was, Stage: v1alpha1.StageApply}, nil, isCompact), by.ContentOf(&plan.Step{Definition: is, Stage: v1alpha1.StageApply}, nil, isCompact)
			if from != to {
				renamed[from] = to
			}
		}
	}
	byName := map[string]*v1alpha1.Skyhook{}
	for _, s := range hooks {
		byName[s.Name] = s
		for _, name := range plan.SortedNames(s.Spec.Packages) {
			p := s.Spec.Packages[name]
			was := plan.NewDefinition(name, p)
			p.Env = redactEnv(p.Env, hide)
			s.Spec.Packages[name] = p
			note(s, was, plan.NewDefinition(name, p))
		}
	}
	for _, m := range maps {
		was, ok := plan.ParseDefinition(m)
		if !ok {
			continue
		}
		bare := was.Package
		bare.ConfigMap, bare.Env = nil, redactEnv(was.Package.Env, hide)
		if len(bare.Env) == 0 {
			continue
		}
		text := node.EncodeJSON(bare)
		is := &plan.Definition{Hash: plan.HashDefinition(text, was.Files), Config: was.Config, Package: bare, Text: text, Files: was.Files}
		is.Package.ConfigMap = was.Package.ConfigMap
		is.PodHash = plan.HashPod(is.Package)
		delete(m.Data, plan.DocumentKey(was.Hash))
		m.Data[plan.DocumentKey(is.Hash)] = text
		m.Name = plan.DefinitionName(m.Labels[plan.LabelDefinition], is)
		m.Annotations[plan.AnnotationDefinition] = is.Hash
		if s := byName[m.Labels[plan.LabelDefinition]]; s != nil {
			note(s, was, is)
		}
	}
	return renamed
}

func redactEnv(env []v1alpha1.EnvVar, hide func(string) string) []v1alpha1.EnvVar {
	out := make([]v1alpha1.EnvVar, len(env))
	for i, e := range env {
		if e.Value != "" {
			e.Value = hide(e.Value)
		}
		out[i] = e
	}
	if len(out) == 0 {
		return nil
	}
	return out
}
