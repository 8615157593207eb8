"""Chat templates that write tool calls as Hermes and Llama 3 do, on the turns of `tiny`."""

HERMES = (
    "{%- if tools -%}<|im_start|>system\n{%- for tool in tools %}\n{{ tool | tojson }}{% endfor -%}"
    "<|im_end|>\n{% endif -%}"
    "{%- for message in messages -%}"
    "{%- if message.role == 'tool' -%}"
    "{%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}<|im_start|>user{%- endif -%}"
    "{{ '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}{{ '<|im_end|>\\n' }}{%- endif -%}"
    "{%- else -%}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{%- endif -%}"
    "{%- endfor -%}{{ '<|im_start|>assistant\\n' }}{# <tool_call> #}"
)
LLAMA = (
    "{%- for message in messages -%}"
    "{%- if message.role == 'tool' -%}"
    "{{ '<|im_start|>ipython\\n\\n' + (message.content | tojson) + '<|im_end|>' }}"
    "{%- else -%}{{ '<|im_start|>' + message.role + '\\n\\n' + message.content + '<|im_end|>' }}{%- endif -%}"
    "{%- endfor -%}{{ '<|im_start|>assistant\\n\\n' }}{# tools #}"
)
WITHOUT_TOOLS = (
    "{%- for message in messages -%}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{%- endfor -%}{%- if add_generation_prompt -%}<|im_start|>assistant\n{%- endif -%}"
)
