package page

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// story is a failure of one of six, from the silence to the last first step; at looks in between.
func story(c *cluster, at func(phase string)) {
	failure := c.lose("n4")
	at("lost")
	c.change(failure, len(c.living)/2, at)
	c.resume()
}

func TestThePageShowsCalmFailureAndRecovery(t *testing.T) {
	c := newCluster(t, 6, 3, 3)
	b := open(t, "http://"+c.page, desk)
	b.until(`document.body.className === "calm" && document.querySelectorAll(".chart").length === 2`)
	time.Sleep(12 * time.Second) // of training, so that there is a line to see
	b.picture("calm")
	receipts := 0
	story(c, func(phase string) {
		switch phase {
		case "lost":
			b.until(`document.querySelectorAll(".stage.lost").length === 1`)
			if says := asks[string](b, `document.getElementById("coverage").textContent`); says[:len("4 layers are one death from lost")] != "4 layers are one death from lost" {
				t.Errorf("the page says %q, expected that what n4 held is one death from lost", says)
			}
		case "consent":
			b.until(`document.getElementById("change").textContent.includes("Waiting for 5 answers of 5 members")`)
		case "receipt":
			b.until(`document.querySelector("[role=progressbar]") && +document.querySelector("[role=progressbar]").getAttribute("aria-valuenow") > 0`)
			if receipts++; receipts == 2 {
				b.picture("failure")
			}
		}
	})
	b.until(`document.body.className === "calm" && document.getElementById("says").textContent === "5 nodes train"`)
	time.Sleep(6 * time.Second)
	b.picture("recovery")
	b.do(clickOn("#change-2"))
	b.until(`document.querySelector(".detail")?.textContent.includes("lost because")`)
	b.picture("change")
}

func TestThePageIsReadInTheDarkAndOnAPhone(t *testing.T) {
	c := newCluster(t, 6, 3, 3)
	story(c, func(string) {})
	dark := open(t, "http://"+c.page+"/#change-2", look{width: 1280, height: 1500, dark: true})
	dark.until(`document.querySelector(".detail")?.textContent.includes("lost because")`)
	if ground := asks[string](dark, `getComputedStyle(document.body).backgroundColor`); ground == "rgb(245, 246, 244)" {
		t.Errorf("the ground is %s in the dark", ground)
	}
	dark.picture("dark")
	phone := open(t, "http://"+c.page, look{width: 390, height: 844, phone: true})
	phone.until(`document.querySelectorAll(".chart").length === 2`)
	if wide := asks[int](phone, `document.documentElement.scrollWidth`); wide > 390 {
		t.Errorf("the page is %d pixels wide on a phone of 390", wide)
	}
	phone.picture("phone")
}

func TestLongNamesFitAndDifferAndNothingIsWrittenOverAnother(t *testing.T) {
	names := make([]string, 6)
	for i := range names {
		names[i] = fmt.Sprintf("ip-10-0-12-3%d-eu-central-1-compute-internal-1896%d", i, i)
	}
	c := newClusterOf(t, names, 3, 0)
	for name, look := range map[string]look{"names": desk, "names-phone": {width: 390, height: 844, phone: true}} {
		b := open(t, "http://"+c.page, look)
		b.until(`document.querySelectorAll(".chart").length === 2`)
		b.until(`document.querySelectorAll(".overlay text").length === 6`)
		if cut := asks[string](b, cutOff); cut != "" {
			t.Errorf("%s: cut off or written over another: %s", name, cut)
		}
		if shown := asks[int](b, `new Set([...document.querySelectorAll(".overlay text")].map((label) => label.lastChild.data)).size`); shown != 6 {
			t.Errorf("%s: the labels of 6 nodes are %d texts", name, shown)
		}
		if wide := asks[int64](b, `document.documentElement.scrollWidth`); wide > look.width {
			t.Errorf("%s: the page is %d pixels wide in a window of %d", name, wide, look.width)
		}
		b.picture(name)
	}
	b := open(t, "http://"+c.page, desk)
	c.change(c.lose(names[3]), 3, func(string) {})
	c.resume()
	b.until(`document.querySelector(".chart .event")`)
	time.Sleep(8 * time.Second) // the change stands further and further to the left
	for width := int64(360); width <= 1440; width += 60 {
		b.do(chromedp.EmulateViewport(width, 900))
		if cut := asks[string](b, cutOff); cut != "" {
			t.Fatalf("%d pixels wide: cut off or written over another: %s", width, cut)
		}
	}
	b.until(`document.querySelector(".chart .what")`)
}

// cutOff returns texts of pictures that lie outside of these, or over another.
const cutOff = `[...document.querySelectorAll(".overlay, .chart")].flatMap((picture) => {
	const frame = picture.getBoundingClientRect(), texts = [...picture.querySelectorAll("text")];
	const boxes = texts.map((text) => text.getBoundingClientRect());
	const over = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
	return texts.filter((_, i) => boxes[i].left < frame.left - 1 || boxes[i].right > frame.right + 1 ||
		boxes.some((other, k) => k !== i && over(boxes[i], other))).map((text) => text.lastChild.data);
}).join("; ")`

func TestAThousandNodesAreSeenWithinASecondAndEachEventWithinAnother(t *testing.T) {
	c := newCluster(t, 1000, 8, 8)
	b := open(t, "http://"+c.page, desk)
	b.until(`document.getElementById("says").textContent === "1000 nodes train"`)
	b.do(reload())
	b.until(`performance.getEntriesByName("drawn").length > 0 && document.querySelector("canvas")`)
	paint := asks[float64](b, `performance.getEntriesByName("first-contentful-paint")[0].startTime`)
	drawn := asks[float64](b, `performance.getEntriesByName("drawn")[0].startTime`)
	fmt.Printf("1000 nodes: first paint after %.0f ms, all drawn after %.0f ms\n", paint, drawn)
	if paint >= 1000 || drawn >= 1000 {
		t.Errorf("first paint after %.0f ms and all drawn after %.0f ms, expected less than a second", paint, drawn)
	}
	time.Sleep(5 * time.Second)
	b.picture("thousand")
	worst := time.Duration(0)
	for _, node := range []string{"n17", "n500", "n983"} {
		c.lose(node)
		worst = max(worst, b.until(fmt.Sprintf(`document.getElementById("nodes").textContent.includes("%slost")`, node)))
	}
	fmt.Printf("1000 nodes: an event is seen after at most %v\n", worst.Round(time.Millisecond))
	if worst > time.Second {
		t.Errorf("an event was seen after %v, expected within a second", worst)
	}
	b.picture("thousand-lost")
}

func TestThePageIsReadByKeyboard(t *testing.T) {
	c := newCluster(t, 6, 3, 0)
	story(c, func(string) {})
	b := open(t, "http://"+c.page, desk)
	b.until(`document.querySelectorAll(".head").length === 2`)
	focused := func() string {
		return asks[string](b, `document.activeElement.dataset.key ?? document.activeElement.className`)
	}
	b.do(press("\t"))
	if now := focused(); now != "skip" {
		t.Errorf("the first Tab leads to %q, expected the link that skips the head", now)
	}
	b.do(press("\r"))
	b.do(press("\t"))
	if now := focused(); now != "n1" {
		t.Errorf("behind it is %q, expected the first stage, n1", now)
	}
	b.do(press(right), press(right))
	if now := focused(); now != "n3" {
		t.Errorf("two arrows lead to %q, expected n3", now)
	}
	b.do(press("\t"), press(down), press("\r"))
	b.until(`document.querySelector(".ring.chosen")`)
	b.do(press("\t"), press(down), press("\r"))
	b.until(`document.querySelector("#change-1[aria-expanded=true]")`)
	if now := focused(); now != "change-1" {
		t.Errorf("the focus is on %q behind the opening of change 1, expected on its head", now)
	}
	b.until(`!document.querySelector(":not([alt]):is(img)") && document.querySelector("[role=status][aria-live=polite]")`)
}
