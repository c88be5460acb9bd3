-- purpose: what a row says, for those who may need any of it.
-- defines: read
local function read(id)
  local f = call('HMGET', row_key(id), 'state', 'attempts', 'holder', 'cancel', 'dedup', 'result_ttl_ms',
    'priority', 'failures', 'stalls', 'max_stalls', 'step', 'lane', 'deadline_ms', 'parent', 'children')
  return {
    state = f[1], attempts = f[2], holder = f[3], cancel = f[4], dedup = f[5], result_ttl_ms = f[6],
    priority = tonumber(f[7]) or 0, failures = tonumber(f[8]) or 0, stalls = tonumber(f[9]) or 0,
    max_stalls = tonumber(f[10]) or 3, step = tonumber(f[11]), lane = f[12], deadline = tonumber(f[13]),
    parent = f[14], children = f[15],
  }
end
