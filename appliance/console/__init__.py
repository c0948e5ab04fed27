"""The console: pages for people over HTTP, and addresses for their monitoring.

A folder is a subject, with its pages (`views.py`, `…_views.py`) and what they need beyond the engine's window; `pages/`
and `serving/` are what all of them stand on. `acts/` has a row for each page, operation and command.

- **Start.** `http_server.load` sets `runtime.place()` (data directory, bind, public address), from which `settings.py`
  takes everything. `start.py` makes `DATA/rocketbox/console.sqlite3` of the models, or migrates it when `PRAGMA
  user_version` says so, makes the administrator that the environment names, and offers the set-up link:
  `sign_in/set_up.py` holds the link's secret in memory and the next step in the database, `sign_in/set_up_views.py` has
  the pages, and `engine/address_check.py` tries an address on our own ports only. The arbiter imports nothing of the
  engine; the first call imports the modules behind `api/lazy.py`, in a thread (`asgi`).
- **A request.** `http_connections.py` bounds connections, headers and slow peers; `request_bodies.py` limits the body
  by address, before Django reads it; `serving/turns.py` gives out turns (two pages at a time, D10; eight places for
  acts that change something, two at the doors; callers take turns) and the thread in which Django works, which keeps
  the place until it has ended. Then `middleware.py`: `Outermost` (numbers, headers), sessions, `Identity`
  (`request.user` is a `User`, a token's `Bearer` or `AnonymousUser`), `Language`, forms, `Access`. All of them run in
  that thread, so that a request changes threads once. WebSockets go to Channels (`live/web_sockets.py`, imported for
  the first one), which checks Origin, session and rights itself. Streams are answers that give their turn back when
  they begin; `live/streams.py` counts them, `live/feed.py` reads the window once for all of them. `users/rights.py`
  ends them, and sockets, with the right to them: it looks at the settings database four times a second while there are
  some.
- **Rights.** The rows of `acts` say role, grants, body and names of each page and operation; `users.access.ACCESS` is
  made of them, and everything else is refused. `users/patterns.py`: the topics and groups that a user or token is kept
  to. Each operation checks them (`api/auth.py`); pages are closed to such users unless their row says `names`
  (`users/scope.py`).
- **Identity.** `sign_in/identity.py` signs in under a new session key and ends sessions when a password changes;
  `sign_in/sessions.py` has a row for each, without which it is over; `sign_in/lockout.py` counts wrong passwords
  (separately for browsers in which the user has signed in before, `sign_in/known_browsers.py`);
  `sign_in/second_factor.py` asks for a code behind them. `sign_in/proxy_sign_in.py` and `sign_in/oidc.py` are the other
  ways in, off unless `sign_in_options.py` finds their settings. `sign_in/recent_login.py` asks again before destructive
  acts; `users/tokens.py` keeps hashes only, `users/once.py` shows a secret once; `users/user_acts.py` has the acts of
  administrators on users, for pages and API.
- **A group.** `groups/group_views.py` shows `window/groups/now.py`, a page of queues at a time, and
  `window/groups/diagnosis.py`; the part that changes is fetched again every 5 s. `groups/reset_views.py` previews, does
  and follows a reset: the state of each queue comes from `offset_resets/pending.py`.
- **A change.** `topics/views.py` and `groups/views.py` read top to bottom: a form, a page with the difference and its
  consequences (`templates/changes/`), the act; `pages/changes.py` has the functions they share. The engine refuses in
  sentences (`window/sentences.py`), which are marked for the catalogue there; `window.refusal_text` translates them.
- **Names.** Another program's store may have topics and groups of any name: `pages/converters.py` makes one segment of
  an address of any name. `tests/browser/test_pages.py` walks every page over such names with axe;
  `tests/clients/test_every_page.py` while official clients hold pulls.
- **Long acts** are jobs (`jobs/`), run by the threads `jobs-1` and `jobs-2`, which rest twice as long as they work. The
  page of a job gets news within 20 ms by an answer that waits (`jobs/views.py`).
- **Live tail.** `engine/window/messages/tail.py` reads the ends of a topic's queues, so sends are not involved.
  `live/tail.py` has a thread `live-tail` while pages watch: pages with the same wish share one read and one text, which
  `call_soon_threadsafe` hands to the loop (a channel layer's `group_send` from a thread takes a second). Each browser
  has a short queue; messages that do not fit are counted, and the page shows the count. A read takes 2 ms at most, then
  the thread rests nine times as long.
- **Lists.** `pages/look_ahead.py` has the window measure queues (`window/figures/measures.py`) a few at a time before a
  list needs them. The first list would otherwise read thousands of files during a request.
- **Reports.** `reports/views.py` shows the result of a run. A document has keys and figures only: `reports/shown.py`
  turns it into a page, `reports/words.py` and `sentences.py` have the words (compared with
  `spark_reports/reports/keys.py`), and `reports/plots/` draws from a document's numbers.
- **History.** `history/recorder.py` takes every figure of the window's `measurements` each 30 s, in lists of 50 between
  which it rests. The present hour is in memory and written every 5 min (`file.py`: a compressed row an hour for each
  series, none for a series that was zero all the time). After midnight the day becomes quarters of an hour.
  `series.series()` answers pages, API and alerts; a figure that was not measured is None.
- **Audit log.** `audit/act_journal.py` records each request that may change something, in a file of fixed length,
  before its view runs, and keeps entries that the database does not take. `audit/log.py` appends entries whose keyed
  digest covers the one before; `audit/seal.py` keeps the head outside the database. `audit/wire_entries.py` takes over
  the records of the gate (`engine/wire_gate.py`, before requests of kind ADMIN in `protocol/request_kinds.py`), each
  act once.
- **What browsers get.** `templates/` and `static/` (vendored files with `vendor.lock`). `serving/static_files.py`
  serves them from memory under addresses with a content mark. No inline code: `Content-Security-Policy: default-src
  'self'`. Texts: `script/messages`.
"""
