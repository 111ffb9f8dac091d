// SPDX-FileCopyrightText: The Skyhook authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/dom"
	browserlog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

//go:embed checks.js
var checks string

// browser is Chromium with what it did. Its methods ask the page itself by JavaScript until something holds. The queries of
// chromedp look at a copy of the page's elements, which follows events, and wait forever when it misses one.
type browser struct {
	*testing.T
	ctx      context.Context
	mu       sync.Mutex
	requests []string // addresses
	messages []string // the last ones between the test and Chromium

	expectProblems bool // a test makes the browser write errors to its console
}

// findBrowser returns the program of Chromium, or of Chrome, which the machines of GitHub have; empty for none.
func findBrowser() string {
	for _, name := range []string{"chromium", "google-chrome"} {
		if program, err := exec.LookPath(name); err == nil {
			return program
		}
	}
	return ""
}

// startBrowser starts Chromium. Whatever it writes to its console as an error fails the test.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	program := findBrowser()
	if program == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("it needs Debian's package chromium, and CI must not leave it out")
		}
		t.Skip("it needs Debian's package chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.WindowSize(1280, 900))
	b := &browser{T: t}
	ctx, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(ctx, chromedp.WithDebugf(b.noteMessage))
	t.Cleanup(end)
	b.ctx = ctx
	chromedp.ListenTarget(ctx, b.note)
	// the browser lives as long as the context it is started with, so this has no deadline of its own: chromedp has one
	if err := chromedp.Run(ctx, network.Enable(), browserlog.Enable()); err != nil {
		t.Fatal(err)
	}
	return b
}

// polls marks the expressions that waitFor asks for again and again.
const polls = " /* polls */"

// noteMessage keeps the beginning of a message for the case that an answer never comes, except of those by which waitFor polls.
func (b *browser) noteMessage(format string, args ...any) {
	const length, number = 300, 100
	message := fmt.Sprintf(format, args...)
	if strings.Contains(message, polls) || strings.Contains(message, `{"type":"boolean","value":false}`) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.messages = append(b.messages[max(0, len(b.messages)+1-number):], fmt.Sprintf("%s %.*s", time.Now().Format("15:04:05.000"), length, message))
}

func (b *browser) note(event any) {
	switch event := event.(type) {
	case *runtime.EventExceptionThrown:
		b.Errorf("a script failed: %v", event.ExceptionDetails)
	case *browserlog.EventEntryAdded:
		if event.Entry.Level == browserlog.LevelError && !b.expectProblems {
			b.Errorf("the console says: %s %s", event.Entry.Text, event.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		b.mu.Lock()
		defer b.mu.Unlock()
		b.requests = append(b.requests, event.Request.URL)
	}
}

// patience is how long actions that follow each other may take. It is much longer than they take on a busy machine.
const patience = 2 * time.Minute

func (b *browser) run(actions ...chromedp.Action) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Run(ctx, actions...); err != nil {
		b.fail(err)
	}
}

func (b *browser) fail(err error) {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.Fatalf("%v; the last messages:\n%s", err, strings.Join(b.messages, "\n"))
}

// evaluate returns the value of an expression.
func evaluate[T any](b *browser, expression string) (value T) {
	b.Helper()
	b.run(evaluation(expression, &value))
	return value
}

func evaluation(expression string, value any) chromedp.Action {
	return chromedp.Evaluate(expression, value, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) })
}

// waitFor waits until an expression is true. A page that gives way to another one has no answer.
func (b *browser) waitFor(expression string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	for {
		holds := false
		err := chromedp.Run(ctx, evaluation(expression+polls, &holds))
		switch {
		case holds:
			return
		case ctx.Err() != nil:
			b.fail(fmt.Errorf("after %s it does not hold: %s: %w", patience, expression, errors.Join(err, ctx.Err())))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// open goes to an address and waits until the page is loaded.
func (b *browser) open(address string) {
	b.Helper()
	b.run(chromedp.Evaluate(`window.isLeft = true`, nil), chromedp.ActionFunc(func(ctx context.Context) error {
		_, _, problem, _, err := page.Navigate(address).Do(ctx)
		if problem != "" {
			return fmt.Errorf("loading %s: %s", address, problem)
		}
		return err
	}))
	b.waitFor(`!window.isLeft && document.readyState === 'complete'`)
}

// element is an expression: the first element that a selector of CSS finds.
func element(selector string) string {
	return `document.querySelector(` + strconv.Quote(selector) + `)`
}

func (b *browser) waitVisible(selector string) {
	b.Helper()
	b.waitFor(element(selector) + `?.checkVisibility() === true`)
}

// text waits for an element and returns its text.
func (b *browser) text(selector string) string {
	b.Helper()
	b.waitVisible(selector)
	return evaluate[string](b, element(selector)+`.innerText`)
}

// center returns where the center of an element is, after the page has scrolled to it.
func (b *browser) center(selector string) (x, y float64) {
	b.Helper()
	b.waitVisible(selector)
	at := evaluate[[]float64](b, `((e) => {
		e.scrollIntoView({block: 'center', behavior: 'instant'});
		const r = e.getBoundingClientRect();
		return [r.x + r.width / 2, r.y + r.height / 2];
	})(`+element(selector)+`)`)
	return at[0], at[1]
}

// click moves the pointer on an element and presses its button.
func (b *browser) click(selector string) {
	b.Helper()
	b.run(chromedp.MouseClickXY(b.center(selector)))
}

// press gives the focus to an element and presses keys.
func (b *browser) press(selector, keys string) {
	b.Helper()
	b.waitVisible(selector)
	b.run(chromedp.Evaluate(element(selector)+`.focus()`, nil), chromedp.KeyEvent(keys))
}

// choose takes a value of a list, as a person does.
func (b *browser) choose(selector, value string) {
	b.Helper()
	b.waitVisible(selector)
	b.run(chromedp.Evaluate(`((e) => {
		e.value = `+strconv.Quote(value)+`;
		e.dispatchEvent(new Event('change', {bubbles: true}));
	})(`+element(selector)+`)`, nil))
}

// chooseFile gives a file to an input, which need not be visible.
func (b *browser) chooseFile(selector, file string) {
	b.Helper()
	b.waitFor(element(selector) + ` !== null`)
	b.run(chromedp.ActionFunc(func(ctx context.Context) error {
		input, _, err := runtime.Evaluate(element(selector)).Do(ctx)
		if err != nil {
			return err
		}
		return dom.SetFileInputFiles([]string{file}).WithObjectID(input.ObjectID).Do(ctx)
	}))
}

// savePicture takes a picture of the page if there is a folder for it. Nothing else asks for one: Chromium has versions that
// now and then never answer such a request.
func (b *browser) savePicture(dir, name string, take func(picture *[]byte) chromedp.Action) {
	b.Helper()
	if dir == "" {
		return
	}
	var picture []byte
	b.run(take(&picture))
	if err := os.WriteFile(filepath.Join(dir, name), picture, 0o644); err != nil {
		b.Error(err)
	}
}

// checkRequests fails if the browser asked for anything but the pages.
func (b *browser) checkRequests(addresses ...string) {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.requests) == 0 {
		b.Error("no request was noted")
	}
	for _, request := range b.requests {
		isOurs := request == "about:blank"
		for _, address := range addresses {
			isOurs = isOurs || strings.HasPrefix(request, address)
		}
		if !isOurs {
			b.Errorf("the browser asked for %s", request)
		}
	}
}
