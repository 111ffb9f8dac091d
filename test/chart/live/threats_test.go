// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/skyhook-k8s/skyhook/api/skyhook/v1alpha1"
	"github.com/skyhook-k8s/skyhook/test/testenv"
)

// TestAccess asks the API server for every cell of the table in docs/internals/threat-model.md, with the roles of the chart.
func TestAccess(t *testing.T) {
	removeCRDs(t)
	w := testenv.New(t, plane, 0)
	mustHelm(t, "v4", w.Namespace, "install", releaseName, "chart", "--set-string", quietly,
		"--set", "rbac.createSkyhookViewerRole=true,rbac.createSkyhookEditorRole=true")
	t.Cleanup(func() { mustHelm(t, "v4", w.Namespace, "uninstall", releaseName, "--no-hooks") })
	team := plane.Namespace(t)
	w.Must(w.Client.Create(context.Background(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "everything"},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}},
	}))
	w.Must(w.Client.Create(context.Background(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "everything"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "everything"},
		Subjects:   []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "tenant"}},
	}))
	for user, role := range map[string]string{"viewer": "skyhook-viewer-role", "editor": "skyhook-editor-role"} {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "threats-" + user},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: user}},
		}
		w.Must(w.Client.Create(context.Background(), binding))
		t.Cleanup(func() { w.Must(w.Client.Delete(context.Background(), binding)) })
	}
	account := "system:serviceaccount:" + w.Namespace + ":" + releaseName
	users := map[string]string{
		"operator": account + "-controller-manager", "pod of a package": account + "-packages",
		"viewer": "viewer", "editor": "editor", "namespace's administrator": "tenant",
	}
	rows := readAccess(t)
	if len(rows) < 20 {
		t.Fatalf("docs/internals/threat-model.md has %d requests", len(rows))
	}
	namespaces := map[string]string{"": "", "skyhook": w.Namespace, "team": team}
	for _, row := range rows {
		for who, want := range row.allowed {
			user, isKnown := users[who]
			if !isKnown {
				t.Fatalf("the table has a column %q", who)
			}
			got := isAllowed(t, user, row.attributes(t, namespaces))
			if got != want {
				t.Errorf("%s may %s: %v, and the table says %v", who, row.request, got, want)
			}
		}
	}
}

// access is a row of the table: a request, and who may send it.
type access struct {
	request string
	allowed map[string]bool
}

// readAccess reads the table of docs/internals/threat-model.md.
func readAccess(t *testing.T) (rows []access) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "internals", "threat-model.md"))
	if err != nil {
		t.Fatal(err)
	}
	var who []string
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case cells[0] == "Request":
			who = cells[1:]
		case who == nil || strings.HasPrefix(cells[0], "---"):
		case len(cells) != len(who)+1:
			return rows
		default:
			row := access{cells[0], map[string]bool{}}
			for i, name := range who {
				if cell := cells[i+1]; cell != "yes" && cell != "no" {
					t.Fatalf("%s, %s: %q is neither yes nor no", row.request, name, cell)
				}
				row.allowed[name] = cells[i+1] == "yes"
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// requestPattern is VERB RESOURCE[.GROUP][/SUBRESOURCE or NAME] [in NAMESPACE].
var requestPattern = regexp.MustCompile(`^(\w+) (\w+)(?:\.([\w.]+))?(?:/([\w.-]+))?(?: in (\w+))?$`)

func (a access) attributes(t *testing.T, namespaces map[string]string) *authorizationv1.ResourceAttributes {
	t.Helper()
	part := requestPattern.FindStringSubmatch(a.request)
	if part == nil {
		t.Fatalf("%q is no request", a.request)
	}
	namespace, isKnown := namespaces[part[5]]
	if !isKnown {
		t.Fatalf("%q: there is no namespace %q", a.request, part[5])
	}
	out := &authorizationv1.ResourceAttributes{Verb: part[1], Resource: part[2], Group: part[3], Namespace: namespace}
	switch part[4] {
	case "status", "exec", "log", "eviction", "proxy", "token":
		out.Subresource = part[4]
	default:
		out.Name = part[4]
	}
	return out
}

func isAllowed(t *testing.T, user string, attributes *authorizationv1.ResourceAttributes) bool {
	t.Helper()
	groups := []string{"system:authenticated"}
	if strings.HasPrefix(user, "system:serviceaccount:") {
		groups = append(groups, "system:serviceaccounts")
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, Groups: groups, ResourceAttributes: attributes}}
	answer, err := newClientset(t).AuthorizationV1().SubjectAccessReviews().Create(context.Background(), review, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Allowed
}

// TestCompromisedNode sends what somebody may try who has the credentials of the kubelet of n1, to an API server that authorizes
// nodes as all clusters do.
func TestCompromisedNode(t *testing.T) {
	removeCRDs(t)
	w := testenv.New(t, plane, 2)
	mustHelm(t, "v4", w.Namespace, "install", releaseName, "chart", "--set-string", quietly)
	t.Cleanup(func() { mustHelm(t, "v4", w.Namespace, "uninstall", releaseName, "--no-hooks") })
	w.Apply(strings.ReplaceAll(strings.ReplaceAll(manifest, "VERSION", "1.0.0"), "CONTENT", "a"))
	victim := w.GetSkyhook("rights")
	config := rest.CopyConfig(plane.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:n1", Groups: []string{"system:nodes", "system:authenticated"}}
	kubelet, err := client.New(config, client.Options{Scheme: testenv.Scheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	secretOf := func(node string) string { // what a package on a node mounts
		name := "of-" + node
		w.Must(w.Client.Create(context.Background(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}}))
		w.Must(w.Client.Create(context.Background(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name},
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}, Volumes: []corev1.Volume{{
				Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}},
			}}},
		}))
		return name
	}
	own, other := secretOf("n1"), secretOf("n2")
	read := func(name string) error {
		return kubelet.Get(context.Background(), client.ObjectKey{Namespace: w.Namespace, Name: name}, &corev1.ConfigMap{})
	}
	w.Eventually("the kubelet reads the ConfigMap of its own pod", func() bool { return read(own) == nil })

	ctx, yes := context.Background(), true
	patch := func(o client.Object, text string) error {
		return kubelet.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(text)))
	}
	object := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: w.Namespace, Name: name} }
	staticPod := func(owners ...metav1.OwnerReference) error {
		p := &corev1.Pod{ObjectMeta: object("forged"), Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		p.OwnerReferences = owners
		return kubelet.Create(ctx, p, client.DryRunAll)
	}
	n1 := w.GetNode("n1")
	ofNode := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n1", UID: n1.UID, Controller: &yes}
	ofSkyhook := metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Skyhook", Name: victim.Name, UID: victim.UID, Controller: &yes}
	for what, c := range map[string]struct {
		err  error
		want bool
	}{
		"annotates itself":                        {patch(w.GetNode("n1"), `{"metadata":{"annotations":{"skyhook.nvidia.com/nodeState_rights":"{}"}}}`), true},
		"labels itself":                           {patch(w.GetNode("n1"), `{"metadata":{"labels":{"pool":"gpu"}}}`), true},
		"sets its own status":                     {kubelet.Status().Patch(ctx, w.GetNode("n1"), client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Running"}}`))), true},
		"mirrors a static pod":                    {staticPod(ofNode), true},
		"labels itself below node-restriction":    {patch(w.GetNode("n1"), `{"metadata":{"labels":{"node-restriction.kubernetes.io/pool":"gpu"}}}`), false},
		"takes away its own taint":                {patch(w.GetNode("n1"), `{"spec":{"taints":[{"key":"x","effect":"NoSchedule"}]}}`), false},
		"annotates another node":                  {patch(w.GetNode("n2"), `{"metadata":{"annotations":{"skyhook.nvidia.com/nodeState_rights":"{}"}}}`), false},
		"mirrors a pod that a Skyhook owns":       {staticPod(ofSkyhook), false},
		"mirrors a pod that node and Skyhook own": {staticPod(ofNode, ofSkyhook), false},
		"reads a ConfigMap of another node's pod": {read(other), false},
		"deletes a pod of another node":           {kubelet.Delete(ctx, &corev1.Pod{ObjectMeta: object(other)}), false},
		"patches a Skyhook":                       {patch(w.GetSkyhook("rights"), `{"spec":{"pause":true}}`), false},
		"patches the status of a Skyhook":         {kubelet.Status().Patch(ctx, w.GetSkyhook("rights"), client.RawPatch("application/merge-patch+json", []byte(`{"status":{"status":"complete"}}`))), false},
		"lists Skyhooks":                          {kubelet.List(ctx, &v1alpha1.SkyhookList{}), false},
		"creates a policy":                        {kubelet.Create(ctx, &v1alpha1.DeploymentPolicy{ObjectMeta: metav1.ObjectMeta{Name: "forged"}}), false},
		"makes a token of the operator": {kubelet.SubResource("token").Create(ctx, &corev1.ServiceAccount{ObjectMeta: object(releaseName + "-controller-manager")},
			&authenticationv1.TokenRequest{}), false},
	} {
		switch {
		case c.want && c.err != nil:
			t.Errorf("a kubelet that %s is refused: %v", what, c.err)
		case !c.want && !apierrors.IsForbidden(c.err):
			t.Errorf("a kubelet that %s: %v, want that it is forbidden", what, fmt.Sprint(c.err))
		}
	}
}
