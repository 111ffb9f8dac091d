// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package site

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// screenshotVariable names a folder in which the test leaves what the browser showed.
const screenshotVariable = "SKYHOOK_SCREENSHOTS"

// findBrowser returns the program of Chromium, or of Chrome, which the machines of GitHub have; empty for none.
func findBrowser() string {
	for _, name := range []string{"chromium", "google-chrome"} {
		if program, err := exec.LookPath(name); err == nil {
			return program
		}
	}
	return ""
}

// startBrowser starts Chromium. Errors of scripts and of requests fail the test.
func startBrowser(t *testing.T) context.Context {
	t.Helper()
	program := findBrowser()
	if program == "" {
		t.Skip("it needs Debian's package chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.WindowSize(1280, 900))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	ctx, stop := chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(ctx)
	t.Cleanup(end)
	chromedp.ListenTarget(ctx, func(event any) {
		if thrown, is := event.(*runtime.EventExceptionThrown); is {
			t.Errorf("a script failed: %v", thrown.ExceptionDetails)
		}
	})
	return ctx
}

// serveSite serves a site below a prefix, as a host of project pages does. A missing file fails the test.
func serveSite(t *testing.T, site string) (address string) {
	t.Helper()
	files := http.StripPrefix("/skyhook", http.FileServer(http.Dir(site)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, isBelow := strings.CutPrefix(r.URL.Path, "/skyhook/")
		if _, err := os.Stat(filepath.Join(site, name)); err != nil || !isBelow {
			t.Errorf("the browser asked for %s", r.URL.Path)
		}
		files.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL + "/skyhook/"
}

// savePicture takes a picture of the page if there is a folder for it. Chromium has versions that now and then never take one.
func savePicture(name string) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		dir := os.Getenv(screenshotVariable)
		if dir == "" {
			return nil
		}
		var picture []byte
		if err := chromedp.CaptureScreenshot(&picture).Do(ctx); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, name), picture, 0o600)
	})
}

// TestBrowser opens the site, follows the navigation, and searches.
func TestBrowser(t *testing.T) {
	site := buildSite(t, repository)
	ctx, address := startBrowser(t), serveSite(t, site)
	var home, install, found, at string
	var pictureWidth int
	if err := chromedp.Run(ctx, chromedp.Navigate(address), chromedp.WaitVisible("main h1")); err != nil {
		t.Fatalf("the index: %v", err)
	}
	if err := chromedp.Run(ctx,
		chromedp.Text("main h1", &home),
		chromedp.WaitVisible(`main img[src$="quick-start.svg"]`),
		chromedp.Evaluate(`document.querySelector('main img').naturalWidth`, &pictureWidth),
		savePicture("home.png"),
		chromedp.Click(`nav.pages a[href$="docs/install.html"]`),
		chromedp.WaitVisible(`nav.pages a[aria-current][href$="docs/install.html"]`),
		chromedp.Text("main h1", &install),
		chromedp.SendKeys("#search", "health gates"),
		chromedp.WaitVisible("#results a"),
		savePicture("search.png"),
		chromedp.Text("#results a", &found),
		chromedp.Click("#results a"),
		chromedp.WaitVisible("#health-gates"),
		chromedp.Location(&at),
	); err != nil {
		t.Fatal(err)
	}
	if home != "Skyhook" || install != "Installing" || pictureWidth == 0 || !strings.HasPrefix(found, "DeploymentPolicy") || !strings.HasSuffix(at, "main/docs/deployment-policy.html#health-gates") {
		t.Errorf("the pages are titled %q and %q, the picture is %d pixels wide, and the search finds %q at %s", home, install, pictureWidth, found, at)
	}
}
