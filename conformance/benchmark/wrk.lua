-- Sends the bodies of a file, one a line, in turn, and prints what wrk measured
-- as one line of JSON. Arguments: FILE PATH.

local threads = 0

function setup(thread)
  thread:set("offset", threads * 97)
  threads = threads + 1
end

function init(args)
  prepared, at = {}, offset
  local headers = { ["Content-Type"] = "application/json" }
  for body in io.lines(args[1]) do
    prepared[#prepared + 1] = wrk.format("POST", args[2], headers, body)
  end
end

function request()
  at = at + 1
  return prepared[at % #prepared + 1]
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '\n{"requests":%d,"duration_us":%d,"p50_us":%d,"p99_us":%d,"not_2xx":%d,"broken":%d,"timeouts":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    e.status, e.connect + e.read + e.write, e.timeout))
end
