// Package page looks at the page that the monitor serves, as people do: with a browser.
package page

import (
	"bytes"
	"context"
	"flag"
	"image"
	"image/png"
	"iter"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

var (
	chromium = flag.String("chromium", "", "the browser; without one nothing is looked at")
	pictures = flag.String("pictures", "", "folder for the screenshots; empty: none are kept")
)

// browser is a window in which the page is open.
type browser struct {
	t   *testing.T
	ctx context.Context

	mutex  sync.Mutex
	errors []string // that the console told
}

// look describes how somebody looks at the page.
type look struct {
	width, height int64
	dark, phone   bool
}

var desk = look{width: 1280, height: 1500}

func open(t *testing.T, address string, look look) *browser {
	t.Helper()
	if *chromium == "" {
		t.Skip("no browser was given: make test-page looks at the page with Debian's Chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(*chromium), chromedp.NoSandbox,
		chromedp.WindowSize(int(look.width), int(look.height)))
	ctx, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(stop)
	b := &browser{t: t, ctx: ctx}
	b.do(chromedp.Navigate("about:blank"))
	go b.hear(chromedp.Console(ctx))
	scheme := "light"
	if look.dark {
		scheme = "dark"
	}
	var held []chromedp.EmulateViewportOption
	if look.phone {
		held = append(held, chromedp.EmulateMobile)
	}
	b.do(chromedp.EmulateViewport(look.width, look.height, held...), prefer(scheme), chromedp.Navigate(address))
	b.until(`document.querySelector(".stage, canvas")`)
	return b
}

// prefer has the browser ask for a colour scheme.
func prefer(scheme string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
		return err
	})
}

// hear keeps what the console tells of errors.
func (b *browser) hear(console iter.Seq2[chromedp.ConsoleMessage, error]) {
	for message, err := range console {
		if err != nil {
			return // the browser was closed
		}
		if message.Type == chromedp.ConsoleException || message.Type == chromedp.ConsoleError {
			b.mutex.Lock()
			b.errors = append(b.errors, message.String()+" "+message.URL)
			b.mutex.Unlock()
		}
	}
}

func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// asks evaluates an expression.
func asks[T any](b *browser, expression string) (value T) {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// until waits for an expression to be true, and returns how long that took.
func (b *browser) until(expression string) time.Duration {
	b.t.Helper()
	began := time.Now()
	for !asks[bool](b, "Boolean("+expression+")") {
		if time.Since(began) > patience {
			b.t.Fatalf("not within %v: %s; the page says %q", patience, expression, asks[string](b, `document.body.innerText`))
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(began)
}

// patience is how long something may take on a machine that does much else.
const patience = time.Minute

// picture looks at the whole page. It must not be of one colour, and the console must have told no error.
func (b *browser) picture(name string) {
	b.t.Helper()
	data, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Fatal(err)
	}
	shown, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		b.t.Fatal(err)
	}
	if found := colours(shown); found < 20 {
		b.t.Errorf("%s: %d colours, expected a picture", name, found)
	}
	if *pictures != "" {
		if err := os.WriteFile(filepath.Join(*pictures, name+".png"), data, 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	for _, told := range b.errors {
		b.t.Errorf("%s: the console says: %s", name, told)
	}
}

func colours(shown image.Image) int {
	found := map[[3]uint32]bool{}
	for y := shown.Bounds().Min.Y; y < shown.Bounds().Max.Y; y += 3 {
		for x := shown.Bounds().Min.X; x < shown.Bounds().Max.X; x += 3 {
			r, g, b, _ := shown.At(x, y).RGBA()
			found[[3]uint32{r, g, b}] = true
		}
	}
	return len(found)
}

const (
	right = kb.ArrowRight
	down  = kb.ArrowDown
)

func press(key string) chromedp.Action[chromedp.Void] { return chromedp.KeyEvent(key) }

func clickOn(selector string) chromedp.Action[chromedp.Void] {
	return chromedp.Click(chromedp.CSS(selector))
}

func reload() chromedp.Action[chromedp.Void] { return chromedp.Reload() }
